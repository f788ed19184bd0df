"""The built-in model: no key and no network, so that a first run shows everything the backend does.

It streams word by word and calls tools on request; what it says is decided by `pai.models.demo_script`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

import orjson

from pai.models import chunks
from pai.models.demo_script import Reply, reply
from pai.models.model import Chunk, FinishReason, ModelRequest, ModelResult
from pai.models.stream import GeneratedStream
from pai.protocol.ids import new_id
from pai.protocol.json import dumps
from pai.protocol.usage import OutputTokenDetails, UsageSummary


class DemoModel:
    """Answers after the latest user text; `delay` passes before each word."""

    name = "demo"
    provider = "demo"

    def __init__(self, *, delay: timedelta = timedelta(milliseconds=20)) -> None:
        self._delay = delay.total_seconds()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[GeneratedStream]:
        opened = GeneratedStream(lambda stream: self._speak(request, stream))
        try:
            yield opened
        finally:
            await opened.aclose()

    async def _speak(self, request: ModelRequest, stream: GeneratedStream) -> AsyncGenerator[Chunk, None]:
        answer = reply(request)
        stream.usage = _usage(request, thought=0, said=0)
        thought = said = 0
        for chunk in _chunks(answer, request):
            if "delta" in chunk or "inputTextDelta" in chunk:
                await asyncio.sleep(self._delay)
                thought += chunk["type"] == "reasoning-delta"
                said += chunk["type"] != "reasoning-delta"
                stream.usage = _usage(request, thought=thought, said=said)
            yield chunk
        reason = FinishReason.tool_calls if answer.calls else FinishReason.stop
        stream.finish(
            ModelResult(
                usage=stream.usage,
                finish_reason=reason,
                diagnostics={"model": self.name, "provider": self.provider, "finishReason": str(reason)},
            )
        )


def _chunks(answer: Reply, request: ModelRequest) -> Iterator[Chunk]:
    if answer.thoughts:
        names = (f"reasoning-{number}" for number in count(1))
        yield from chunks.reasoning(
            words(answer.thoughts), id=next(name for name in names if name not in request.used_call_ids)
        )
    if answer.text:
        yield from chunks.text(words(answer.text))
    for call in answer.calls:
        yield from chunks.tool_call(new_id("call"), call.tool.name, call.input, deltas=4, dynamic=call.tool.dynamic)


def words(text: str) -> list[str]:
    """Pieces that end where a word ends; joined they are the text."""
    return re.findall(r"\s*\S+\s*\Z|\s*\S+|\s+\Z", text)


def _usage(request: ModelRequest, *, thought: int, said: int) -> UsageSummary:
    """A rough count: a token for four bytes read, one for each piece said."""
    read = (len(request.instructions or "") + sum(_size(message) for message in request.messages)) // 4
    return UsageSummary(
        input_tokens=read,
        output_tokens=thought + said,
        total_tokens=read + thought + said,
        output_token_details=OutputTokenDetails(text_tokens=said, reasoning_tokens=thought),
    )


def _size(message: object) -> int:
    try:
        return len(dumps(message))
    except (TypeError, orjson.JSONEncodeError):
        return 0
