"""Every provider, spoken to for real over HTTP in its own format."""

from typing import Any

import pytest

from pai.models import FinishReason, ToolDefinition
from support.fake_providers import Reply, call_reply, text_reply
from support.model_calls import WEATHER, chunks_of, of_type, request, stored, text_of, types, user
from support.provider_answers import Answer, Call, Found, Search, Text, Thinking, Usage


def answers(*items: Any, **more: Any) -> Reply:
    return Reply(answer=Answer(items=items, **more))


async def test_text_arrives_as_the_provider_sent_it(connect: Any, provider: str) -> None:
    async with connect(provider, text_reply("Hello ", "wörld 🌍", "\n\n!")) as (_, model):
        chunks, result = await chunks_of(model)
    assert text_of(chunks) == "Hello wörld 🌍\n\n!"
    assert types(chunks)[0] == "text-start"
    assert len(of_type(chunks, "text-end")) == 1
    assert result.finish_reason == FinishReason.stop
    assert result.diagnostics["model"] == "fake-model"
    assert result.diagnostics["provider"] == provider


async def test_thinking_ends_before_the_text_that_follows_it(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Thinking(["I ", "think"]), Text(["so"]))) as (_, model):
        chunks, _ = await chunks_of(model)
    assert text_of(chunks, "reasoning") == "I think"
    order = types(chunks)
    assert max(i for i, kind in enumerate(order) if kind == "reasoning-end") < order.index("text-start")


async def test_parallel_tool_calls_finish_with_tool_calls(connect: Any, provider: str) -> None:
    calls = [("a", "get_weather", {"city": "Paris"}), ("b", "get_weather", {"city": "Rom ❤"})]
    async with connect(provider, call_reply(*calls)) as (_, model):
        chunks, result = await chunks_of(model)
    available = of_type(chunks, "tool-input-available")
    assert [chunk["input"] for chunk in available] == [{"city": "Paris"}, {"city": "Rom ❤"}]
    assert len({chunk["toolCallId"] for chunk in available}) == 2
    assert result.finish_reason == FinishReason.tool_calls


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic"])
async def test_tool_input_streams_as_it_is_written(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Call("a", "get_weather", '{"city": "Paris"}', pieces=5))) as (_, model):
        chunks, _ = await chunks_of(model)
    deltas = [chunk["inputTextDelta"] for chunk in of_type(chunks, "tool-input-delta")]
    assert "".join(deltas) == '{"city": "Paris"}'
    assert len(deltas) > 1


async def test_a_call_without_arguments_is_an_empty_object(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Call("a", "get_weather", ""))) as (_, model):
        chunks, _ = await chunks_of(model)
    assert [chunk["input"] for chunk in of_type(chunks, "tool-input-available")] == [{}]


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic"])
async def test_a_call_that_was_cut_by_the_output_limit_is_an_input_error(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Call("a", "get_weather", '{"city": "Pa'), finish="length")) as (_, model):
        chunks, result = await chunks_of(model)
    assert of_type(chunks, "tool-input-available") == []
    (error,) = of_type(chunks, "tool-input-error")
    assert error["input"] == '{"city": "Pa'
    assert "output limit" in error["errorText"]
    assert result.finish_reason == FinishReason.length
    assert stored(chunks)["parts"][1]["state"] == "output-error"


async def test_the_finish_reasons_of_all_providers_are_the_same_words(connect: Any, provider: str) -> None:
    for finish, reason in (("length", FinishReason.length), ("filter", FinishReason.content_filter)):
        async with connect(provider, answers(Text(["partly"]), finish=finish)) as (_, model):
            _, result = await chunks_of(model)
        assert result.finish_reason == reason


async def test_usage_counts_cached_tokens_once(connect: Any, provider: str) -> None:
    usage = Usage(20, 10, cache_read=5)
    async with connect(provider, answers(Text(["a"]), usage=usage)) as (_, model):
        _, result = await chunks_of(model)
    given = 25 if provider == "anthropic" else 20  # Anthropic counts what it read from the cache apart
    assert result.usage.input_tokens == given
    assert result.usage.input_token_details.no_cache_tokens == given - 5
    assert result.usage.input_token_details.cache_read_tokens == 5
    assert result.usage.input_token_details.cache_write_tokens is None
    assert result.usage.output_tokens == 10
    assert result.usage.total_tokens == given + 10


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "google"])
async def test_reasoning_tokens_are_part_of_the_output(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Text(["a"]), usage=Usage(20, 10, reasoning=4))) as (_, model):
        _, result = await chunks_of(model)
    assert result.usage.output_tokens == 10
    assert result.usage.output_token_details.reasoning_tokens == 4
    assert result.usage.output_token_details.text_tokens == 6


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "google"])
async def test_usage_that_comes_twice_is_not_summed(connect: Any, provider: str) -> None:
    answer = answers(Text(["a", "b"]), usage=Usage(20, 10), usage_twice=True)
    async with connect(provider, answer) as (_, model):
        _, result = await chunks_of(model)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (20, 10)


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "google"])
async def test_usage_that_never_came_is_absent(connect: Any, provider: str) -> None:
    async with connect(provider, answers(Text(["a"]), usage=None)) as (_, model):
        _, result = await chunks_of(model)
    assert result.usage.wire() == {"inputTokenDetails": {}, "outputTokenDetails": {}}


async def test_the_provider_gets_instructions_tools_and_settings(connect: Any, provider: str) -> None:
    async with connect(provider, text_reply("ok")) as (fake, model):
        asked = request(user("hi"), instructions="Be nice.", settings={"max_tokens": 77})
        await chunks_of(model, asked)
    body = str(fake.bodies[0])
    assert "Be nice." in body
    assert "The weather of a city." in body
    assert "77" in body


@pytest.mark.parametrize("provider", ["openai", "openai-chat"])
async def test_tools_that_came_with_a_request_are_never_strict(connect: Any, provider: str) -> None:
    dynamic = ToolDefinition(name="pick", description="Pick.", input_schema=WEATHER.input_schema, dynamic=True)
    async with connect(provider, call_reply(("a", "pick", {"city": "x"}))) as (fake, model):
        chunks, _ = await chunks_of(model, request(tools=[dynamic]))
    tool = fake.bodies[0]["tools"][0]
    assert (tool.get("function") or tool).get("strict") in (None, False)
    assert all(chunk["dynamic"] is True for chunk in chunks if "toolName" in chunk)


async def test_ids_that_the_run_has_already_are_not_used_again(connect: Any, provider: str) -> None:
    used = frozenset({"a", "reasoning-1"})
    reply = answers(Thinking(["hm"]), Call("a", "get_weather", "{}"))
    async with connect(provider, reply) as (_, model):
        chunks, _ = await chunks_of(model, request(used_call_ids=used))
    ids = {chunk["toolCallId"] for chunk in chunks if "toolCallId" in chunk}
    ids |= {chunk["id"] for chunk in chunks if chunk["type"].startswith("reasoning")}
    assert len(ids) == 2
    assert not ids & used


async def test_a_paused_turn_goes_on_with_the_result_of_its_search_in_the_next_message(connect: Any) -> None:
    pages = [("https://tea.example/a", "Tea")]
    replies = (
        answers(Text(["Let me see."]), Search("tea", None), finish="pause"),
        answers(Found(pages), Text(["Tea is hot."])),
        text_reply("ok"),
    )
    settings = {"native_tools": ["web_search"]}
    async with connect("anthropic", *replies) as (fake, model):
        chunks, result = await chunks_of(model, request(settings=settings))
        assert result.suspended
        first = stored(chunks)
        chunks, result = await chunks_of(model, request(user("hi"), first, settings=settings))
        assert not result.suspended
        assert [chunk["url"] for chunk in of_type(chunks, "source-url")] == [pages[0][0]]
        second = stored(chunks, id="m2")
        await chunks_of(model, request(user("hi"), first, second, user("and?", "u2"), settings=settings))
    assert fake.bodies[1]["messages"][-1]["role"] == "assistant"
    said = [
        block
        for message in fake.bodies[2]["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    assert [block["type"] for block in said] == ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert said[2]["tool_use_id"] == said[1]["id"]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_search_of_the_provider_is_a_settled_call_with_sources_told_once(connect: Any, provider: str) -> None:
    pages = [("https://tea.example/a", "Tea"), ("https://tea.example/b", "More tea")]
    reply = answers(Search("tea", pages), Text(["Tea is hot."], citations=pages[:1]))
    async with connect(provider, reply) as (_, model):
        settings = {"native_tools": ["web_search"], "openai_include_web_search_sources": True}
        chunks, result = await chunks_of(model, request(settings=settings))
    assert result.finish_reason == FinishReason.stop
    (done,) = of_type(chunks, "tool-output-available")
    assert done["providerExecuted"] is True
    assert sorted(chunk["url"] for chunk in of_type(chunks, "source-url")) == [page[0] for page in pages]
    message = stored(chunks)
    (text,) = [part for part in message["parts"] if part["type"] == "text"]
    (citation,) = text["citations"]
    assert citation["source"]["url"] == pages[0][0]
    assert (citation["startIndex"], citation["endIndex"]) == (0, len("Tea is hot."))


async def test_grounding_that_comes_after_the_text_is_cited_in_it(connect: Any) -> None:
    pages = [("https://tea.example/a", "Tea")]
    reply = answers(Text(["Tea ", "is hot."], citations=pages))
    async with connect("google", reply) as (_, model):
        chunks, _ = await chunks_of(model, request(tools=[], settings={"native_tools": ["web_search"]}))
    (text,) = [part for part in stored(chunks)["parts"] if part["type"] == "text"]
    assert text["citations"][0]["source"]["url"] == pages[0][0]
    assert [chunk["url"] for chunk in of_type(chunks, "source-url")] == [pages[0][0]]
