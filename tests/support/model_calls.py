"""Small things that tests of models share: a request, a run of one call, and stored messages made of its chunks."""

from collections.abc import Sequence
from typing import Any

from pai.fold import fold
from pai.models import Model, ModelRequest, ModelResult, ToolDefinition
from pai.protocol.chunks import validate_chunk
from pai.protocol.json import dumps, loads

WEATHER = ToolDefinition(
    name="get_weather",
    description="The weather of a city.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def user(text: str, id: str = "u1") -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def request(*messages: dict[str, Any], tools: Sequence[ToolDefinition] = (WEATHER,), **fields: Any) -> ModelRequest:
    given = messages or (user("hi"),)
    return ModelRequest(messages=given, message_id="m1", run_id="r1", tools=tools, **fields)


async def chunks_of(model: Model, asked: ModelRequest | None = None) -> tuple[list[dict[str, Any]], ModelResult]:
    """All chunks of one call, each checked against the wire's schema, and its result."""
    async with model.stream(asked or request()) as stream:
        chunks = [chunk async for chunk in stream]
        result = stream.result
    for chunk in chunks:
        validate_chunk(chunk)
    return chunks, result


def stored(chunks: Sequence[dict[str, Any]], *outputs: dict[str, Any], id: str = "m1") -> dict[str, Any]:
    """The message as a store gives it back: folded, written as JSON and read again."""
    step = [{"type": "start", "messageId": id}, {"type": "start-step"}, *chunks, *outputs, {"type": "finish-step"}]
    message, errors = fold([*step, {"type": "finish"}])
    assert errors == []
    read: dict[str, Any] = loads(dumps(message))
    return read


def output(call_id: str, value: Any) -> dict[str, Any]:
    return {"type": "tool-output-available", "toolCallId": call_id, "output": value}


def text_of(chunks: Sequence[dict[str, Any]], kind: str = "text") -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == f"{kind}-delta")


def types(chunks: Sequence[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def of_type(chunks: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [chunk for chunk in chunks if chunk["type"] == kind]
