"""Stored messages become a history that a provider accepts, whatever was stored."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)

from pai.models.loader import load_messages
from pai.models.response_facts import Called

VECTORS = (Path(__file__).parents[2] / "vectors" / "convert_vectors.jsonl").read_text(encoding="utf-8").splitlines()
FACTS = {"type": "data-pai-response", "id": "response", "data": {"provider": "anthropic", "system": "anthropic"}}


async def loaded(*messages: dict[str, Any], label: str = "anthropic", **options: Any) -> list[ModelMessage]:
    called = Called(label=label, system="openai" if label.startswith("openai") else label)
    return await load_messages(messages, called=called, **options)


def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "x", "role": role, "parts": list(parts)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def call(state: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": id, "state": state, "input": {"a": 1}, **more}


def parts(messages: list[ModelMessage]) -> list[Any]:
    return [part for message in messages for part in message.parts]


def result(messages: list[ModelMessage]) -> ToolReturnPart:
    (found,) = [part for part in parts(messages) if isinstance(part, ToolReturnPart)]
    return found


async def test_roles_become_requests_and_responses() -> None:
    history = await loaded(
        said("system", text("Be "), text("nice.")), said("user", text("hi")), said("assistant", text("ho"))
    )
    assert [type(message) for message in history] == [ModelRequest, ModelResponse]
    system, user, answer = parts(history)
    assert isinstance(system, SystemPromptPart)
    assert system.content == "Be nice."
    assert isinstance(user, UserPromptPart)
    assert user.content == "hi"
    assert answer == TextPart("ho")


async def test_results_and_what_the_user_says_next_are_one_turn() -> None:
    history = await loaded(
        said("user", text("hi")), said("assistant", call("output-available", output=1)), said("user", text("and?"))
    )
    assert [type(message) for message in history] == [ModelRequest, ModelResponse, ModelRequest]
    assert [type(part) for part in history[-1].parts] == [ToolReturnPart, UserPromptPart]


@pytest.mark.parametrize(
    ("part", "content", "outcome"),
    [
        (call("output-available", output={"x": None}), {"x": None}, "success"),
        (call("output-available", output=None), None, "success"),
        (call("output-error", errorText="no"), "no", "failed"),
        (call("output-denied", approval={"id": "a", "approved": False, "reason": "why"}), "why", "denied"),
        (call("output-denied", approval={"id": "a", "approved": False}), "Tool call execution denied.", "denied"),
        (call("approval-responded", approval={"id": "a", "approved": False}), "Tool call execution denied.", "denied"),
    ],
)
async def test_every_settled_call_has_exactly_one_result(part: dict[str, Any], content: Any, outcome: str) -> None:
    found = result(await loaded(said("assistant", part)))
    assert (found.content, found.outcome, found.tool_call_id, found.tool_name) == (content, outcome, "c", "t")


@pytest.mark.parametrize("state", ["input-available", "approval-requested", "approval-responded", "strange"])
async def test_a_call_that_nobody_settled_is_closed_as_an_error_and_reported(state: str, caplog: Any) -> None:
    found = result(await loaded(said("assistant", call(state))))
    assert found.outcome == "failed"
    assert "without a result" in caplog.text


async def test_a_call_whose_input_never_ended_is_left_out() -> None:
    assert await loaded(said("assistant", call("input-streaming"))) == []


async def test_a_call_id_that_comes_twice_is_one_call() -> None:
    history = await loaded(said("assistant", call("output-available", output=1), call("output-available", output=2)))
    assert result(history).content == 1


async def test_input_that_was_no_object_goes_back_as_the_model_wrote_it() -> None:
    broken = {**call("output-error", errorText="bad"), "input": '{"a": '}
    (made,) = [part for part in parts(await loaded(said("assistant", broken))) if isinstance(part, ToolCallPart)]
    assert made.args == '{"a": '


async def test_a_stopped_call_goes_back_with_what_there_was_of_its_input() -> None:
    stopped = {"type": "tool-t", "toolCallId": "c", "state": "output-error", "errorText": "stopped", "rawInput": '{"a'}
    (made,) = [part for part in parts(await loaded(said("assistant", stopped))) if isinstance(part, ToolCallPart)]
    assert made.args == '{"a'


async def test_dynamic_tools_keep_their_name() -> None:
    part = {**call("output-available", output=1), "type": "dynamic-tool", "toolName": "mcp-x"}
    assert result(await loaded(said("assistant", part))).tool_name == "mcp-x"


@pytest.mark.parametrize(
    ("made_up", "sent"),
    [
        ("", "_"),
        ("n" * 100_000, "n" * 64),
        ("a\n\x07b", "a__b"),
        ("functions.add x", "functions_add_x"),
        ("wetter_für", "wetter_f_r"),
        ("7days", "_7days"),
        ("-" * 64, "_" + "-" * 63),
        ("ok\n", "ok_"),
        ("x" * 64, "x" * 64),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_tool_name_that_a_model_made_up_goes_back_as_one_that_providers_take(
    made_up: str, sent: str, dynamic: bool
) -> None:
    named = {"type": "dynamic-tool", "toolName": made_up} if dynamic else {"type": f"tool-{made_up}"}
    history = await loaded(said("assistant", {**call("output-error", errorText="no such tool"), **named}))
    assert [part.tool_name for part in parts(history)] == [sent, sent]


@pytest.mark.parametrize("made_up", ["functions.add:0", "c" * 180, "ä", "a b"])
async def test_a_call_id_of_another_provider_goes_back_as_one_that_every_provider_takes(made_up: str) -> None:
    foreign = said("assistant", call("output-available", id=made_up, output=1))
    made, answer = parts(await loaded(foreign))
    assert made.tool_call_id == answer.tool_call_id
    assert re.fullmatch("[A-Za-z0-9_-]{1,37}", made.tool_call_id)
    assert parts(await loaded(foreign))[0].tool_call_id == made.tool_call_id, "what was cached stays so"
    own = said("assistant", FACTS, call("output-available", id=made_up, output=1))
    assert {part.tool_call_id for part in parts(await loaded(own))} == {made_up}


async def test_calls_of_two_turns_that_have_one_id_go_back_with_two() -> None:
    turns = [said("user", text("go on")), said("assistant", call("output-available", id="call_0", output=1))]
    history = await loaded(*turns, *turns)
    calls = [part.tool_call_id for part in parts(history) if isinstance(part, ToolCallPart)]
    results = [part.tool_call_id for part in parts(history) if isinstance(part, ToolReturnPart)]
    assert calls == results == ["call_0", "call_0-2"]


async def test_steps_are_responses_of_their_own() -> None:
    step = {"type": "step-start"}
    message = said("assistant", step, text("a"), call("output-available", output=1), step, text("b"))
    history = await loaded(message)
    assert [type(one) for one in history] == [ModelResponse, ModelRequest, ModelResponse]


async def test_unknown_parts_keys_and_roles_are_skipped() -> None:
    strange = [
        {"type": "data-chart", "data": 1},
        {"type": "data-pai-tool-error", "id": "c", "data": {}},
        {"type": "source-url", "sourceId": "s", "url": "https://a.example"},
        {"type": "never-heard-of", "x": 1},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "file"},
        {"no": "type"},
        "not even a part",
        None,
    ]
    history = await loaded(
        said("user", *strange, text("hi")), said("assistant", *strange, text("ho", future=1)), said("robot")
    )
    assert [part.content for part in parts(history)] == ["hi", "ho"]


async def test_messages_without_content_are_left_out() -> None:
    assert await loaded(said("user"), said("assistant"), said("user", text("")), {"id": "x", "role": "user"}) == []


async def test_reasoning_goes_back_to_who_thought_it_and_to_nobody_else() -> None:
    sealed = {"type": "reasoning", "text": "hm", "providerMetadata": {"anthropic": {"signature": "s"}}}
    message = said("assistant", sealed, text("so"), FACTS)
    thinking = [part for part in parts(await loaded(message)) if isinstance(part, ThinkingPart)]
    assert [(part.content, part.signature) for part in thinking] == [("hm", "s")]
    for label in ("openai", "openai-chat", "google"):
        assert [type(part) for part in parts(await loaded(message, label=label))] == [TextPart]


async def test_the_two_interfaces_of_one_provider_do_not_share_reasoning() -> None:
    facts = {**FACTS, "data": {"provider": "openai", "system": "openai"}}
    message = said("assistant", {"type": "reasoning", "text": "hm"}, text("so"), facts)
    assert len(parts(await loaded(message, label="openai"))) == 2
    assert len(parts(await loaded(message, label="openai-chat"))) == 1


async def test_a_tool_of_the_provider_has_its_result_right_behind_it() -> None:
    search = {
        **call("output-available", output=[1]),
        "providerExecuted": True,
        "type": "dynamic-tool",
        "toolName": "web_search",
    }
    message = said("assistant", search, text("so"), FACTS)
    assert [type(part) for part in parts(await loaded(message))] == [NativeToolCallPart, NativeToolReturnPart, TextPart]
    assert [type(part) for part in parts(await loaded(message, label="google"))] == [TextPart]


async def test_data_uris_are_bytes_and_text_files_are_text() -> None:
    png = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AQI="}
    csv = {"type": "file", "mediaType": "text/csv", "url": "data:text/csv,a%2Cb", "filename": "x.csv"}
    (prompt,) = parts(await loaded(said("user", text("see"), png, csv)))
    assert prompt.content[:2] == ["see", BinaryContent(b"\x01\x02", media_type="image/png")]
    assert "a,b" in prompt.content[2]
    assert "x.csv" in prompt.content[2]


async def test_a_broken_data_uri_is_only_mentioned() -> None:
    for url in ("data:", "data:image/png;base64,%%%", "data:image/png;base64"):
        (prompt,) = parts(await loaded(said("user", {"type": "file", "mediaType": "image/png", "url": url})))
        assert "cannot be read" in prompt.content


@pytest.mark.parametrize(
    ("label", "media_type", "kind"),
    [
        ("openai", "image/png", ImageUrl),
        ("openai-chat", "image/png", ImageUrl),
        ("anthropic", "image/png", ImageUrl),
        ("google", "image/png", UploadedFile),
        ("openai-chat", "application/pdf", str),
        ("anthropic", "text/plain", str),
        ("bedrock", "image/png", str),
    ],
)
async def test_an_address_is_handed_on_where_the_provider_fetches_it_and_told_elsewhere(
    label: str, media_type: str, kind: type
) -> None:
    part = {"type": "file", "mediaType": media_type, "url": "https://host.example/a"}
    (prompt,) = parts(await loaded(said("user", text("see"), part), label=label))
    assert isinstance(prompt.content[1], kind)
    assert "https://host.example/a" in str(prompt.content[1])


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/api/files/1", "ftp://x.example/a", "blob:x", "gs://bucket/x"])
async def test_other_addresses_are_never_followed(url: str) -> None:
    (prompt,) = parts(
        await loaded(said("user", {"type": "file", "mediaType": "image/png", "url": url}), label="google")
    )
    assert isinstance(prompt.content, str)


async def test_attachments_are_read_by_their_id() -> None:
    async def load(file_id: str) -> tuple[bytes, str]:
        return file_id.encode(), "application/pdf"

    part = {"type": "data-pai-attachment", "id": "a", "data": {"fileId": "file_1", "mediaType": "application/pdf"}}
    (prompt,) = parts(await loaded(said("user", text("see"), part), load_file=load))
    assert prompt.content[1] == BinaryContent(b"file_1", media_type="application/pdf")
    (prompt,) = parts(await loaded(said("user", text("see"), part)))
    assert "cannot be read" in prompt.content[1]


@pytest.mark.parametrize("line", VECTORS, ids=[json.loads(line)["name"] for line in VECTORS])
async def test_whatever_was_stored_every_call_has_one_result_right_behind_it(line: str) -> None:
    history = await loaded(*json.loads(line)["messages"])
    for index, message in enumerate(history):
        calls = Counter(part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart))
        following = history[index + 1].parts if calls else []
        assert calls == Counter(part.tool_call_id for part in following if isinstance(part, ToolReturnPart))
        assert set(calls.values()) <= {1}
