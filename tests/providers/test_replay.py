"""What a provider said goes back to it byte for byte, after it was streamed, folded, stored and loaded again.

This is the gate for every upgrade of the library below.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from pai.models.adapter import PydanticAIModel
from support.fake_providers import PROVIDERS, Reply, text_reply
from support.model_calls import chunks_of, of_type, output, request, stored, user
from support.provider_answers import Answer, Call, Search, Text, Thinking

PAGES = [("https://tea.example/a", "Tea"), ("https://tea.example/b", "More tea")]
SEARCHES = ("openai", "anthropic")


class Recording(WrapperModel):
    """Keeps the streams that it opened, and so the original responses."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.streams: list[StreamedResponse] = []

    @asynccontextmanager
    async def request_stream(self, *arguments: Any, **named: Any) -> AsyncIterator[StreamedResponse]:
        async with super().request_stream(*arguments, **named) as stream:
            self.streams.append(stream)
            yield stream


def items(provider: str) -> list[Any]:
    searched = [Search("tea", PAGES)] if provider in SEARCHES else []
    cited = PAGES[:1] if provider != "openai-chat" else []
    return [
        Thinking(["I think. ", "I do."]),
        *searched,
        Text(["Tea is hot ❤", " ([tea](https://tea.example/a))."], citations=cited),
        Call("call_a", "get_weather", '{"city": "Paris",  "n": 1.50, "deep": {"z": 1, "a": [null, true]}}'),
        Call("call_b", "get_weather", '{"city":"Rome"}'),
    ]


async def test_a_follow_up_sends_the_body_that_the_original_response_would_make(connect: Any, provider: str) -> None:
    replies = (Reply(answer=Answer(items=items(provider))), text_reply("done"))
    async with connect(provider, *replies) as (fake, model):
        recording = Recording(model._model)
        model = PydanticAIModel(recording, label=provider)
        asked = request(user("hi"), settings={"native_tools": ["web_search"] if provider in SEARCHES else []})
        chunks, _ = await chunks_of(model, asked)
        original = recording.streams[0].get()
        calls = [
            chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-available") if "providerExecuted" not in chunk
        ]
        returns = [ToolReturnPart("get_weather", {"t": number}, call) for number, call in enumerate(calls)]
        history = [ModelRequest([UserPromptPart("hi")]), original, ModelRequest(returns)]
        async with model._open(history, asked, _native(asked)) as stream:
            async for _ in stream:
                pass

        message = stored(chunks, *(output(call, {"t": number}) for number, call in enumerate(calls)))
        await chunks_of(model, request(user("hi"), message, settings=asked.settings))
    assert len(calls) == 2
    assert fake.bodies[2] == fake.bodies[1]
    _check_everything_went_back(provider, str(fake.bodies[2]))


def _native(asked: Any) -> Any:
    from pai.models.adapter import _native_tools

    return _native_tools(asked.settings["native_tools"])


def _check_everything_went_back(provider: str, body: str) -> None:
    """The comparison proves nothing when both sides lost the same thing."""
    if provider in ("openai", "anthropic"):
        assert "c2lnbmF0dXJl" in body
        assert ("url_citation" if provider == "openai" else "encrypted_index") in body
    if provider == "google":
        assert "c2VhbA==" in body
    assert "Tea is hot ❤" in body
    assert "Rome" in body


@pytest.mark.parametrize(("provider", "other"), list(itertools.permutations(PROVIDERS, 2)))
async def test_another_provider_gets_text_and_calls_and_no_secrets_of_the_first(
    connect: Any, provider: str, other: str
) -> None:
    async with connect(provider, Reply(answer=Answer(items=items(provider)))) as (_, model):
        chunks, _ = await chunks_of(
            model, request(settings={"native_tools": ["web_search"] if provider in SEARCHES else []})
        )
    calls = [
        chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-available") if "providerExecuted" not in chunk
    ]
    message = stored(chunks, *(output(call, "ok") for call in calls))
    async with connect(other, text_reply("done")) as (fake, model):
        await chunks_of(model, request(user("hi"), message))
    body = str(fake.bodies[0])
    assert "Tea is hot ❤" in body
    assert "Rome" in body
    for secret in ("c2lnbmF0dXJl", "rs_1", "I think.", "web_search", "fc_call_a"):
        assert secret not in body


async def test_a_response_that_was_cut_short_goes_back_without_ids(connect: Any) -> None:
    async with connect("openai", Reply(answer=Answer(items=items("openai")))) as (_, model):
        chunks, _ = await chunks_of(model, request(settings={"native_tools": ["web_search"]}))
    cut = [chunk for chunk in chunks if chunk["type"] != "data-pai-response"]
    calls = [chunk["toolCallId"] for chunk in of_type(cut, "tool-input-available") if "providerExecuted" not in chunk]
    message = stored(cut, *(output(call, "ok") for call in calls))
    async with connect("openai", text_reply("done")) as (fake, model):
        await chunks_of(model, request(user("hi"), message))
    body = str(fake.bodies[0])
    assert "Tea is hot" in body
    assert "msg_1" not in body
    assert "rs_1" not in body


async def test_tool_errors_are_errors_to_the_provider(connect: Any, provider: str) -> None:
    async with connect(provider, Reply(answer=Answer(items=[Call("a", "get_weather", "{}")])), text_reply("ok")) as (
        fake,
        model,
    ):
        chunks, _ = await chunks_of(model)
        (call,) = of_type(chunks, "tool-input-available")
        failed = {"type": "tool-output-error", "toolCallId": call["toolCallId"], "errorText": "No such city"}
        await chunks_of(model, request(user("hi"), stored(chunks, failed)))
    body = fake.bodies[1]
    match provider:
        case "anthropic":
            assert body["messages"][-1]["content"][0]["is_error"] is True
        case "openai":
            assert body["input"][-1]["output"] == '{"error":"No such city"}'
        case "openai-chat":
            assert body["messages"][-1]["content"] == '{"error":"No such city"}'
        case "google":
            assert body["contents"][-1]["parts"][0]["functionResponse"]["response"] == {"error": "No such city"}
