"""Stored messages against vectors made by `validateUIMessages` of the npm package `ai` 7.0.173."""

import json
from pathlib import Path
from typing import Any

import pytest

from pai.protocol.messages import MessagesInvalid, validate_messages
from pai.protocol.parts import is_data_part, is_tool_part, tool_name
from pai.protocol.tool_parts import ToolState, is_settled

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors" / "validate_vectors.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_messages_are_valid_when_the_ai_sdk_says_so_and_read_the_same(vector: dict[str, Any]) -> None:
    before = json.dumps(vector["messages"])
    try:
        result = {"valid": True, "data": validate_messages(vector["messages"])}
    except MessagesInvalid:
        result = {"valid": False}

    assert result == vector["expected"]
    assert json.dumps(vector["messages"]) == before


def assistant(*parts: Any) -> list[Any]:
    return [{"id": "m", "role": "assistant", "parts": list(parts)}]


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        (None, ""),
        ({}, ""),
        ([], ""),
        ([None], "0"),
        ([{"role": "user", "parts": []}], "0.id"),
        ([{"id": "m", "role": "tool", "parts": []}], "0.role"),
        ([{"id": "m", "role": "user", "parts": []}], "0"),
        (assistant(None), "0.parts.0"),
        (assistant({"type": "text", "text": "x"}, {"type": "attachment", "id": "a"}), "0.parts.1"),
        (assistant({"type": "text", "text": None}), "0.parts.0.text"),
        (assistant({"type": "tool-x", "toolCallId": "c", "state": "cancelled"}), "0.parts.0"),
        (assistant({"type": "tool-x", "toolCallId": "c", "state": "input-available"}), "0.parts.0.input"),
        (
            assistant({"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": 1, "output": None}),
            "0.parts.0.output",
        ),
    ],
    ids=repr,
)
def test_the_error_names_the_place(messages: Any, path: str) -> None:
    with pytest.raises(MessagesInvalid) as caught:
        validate_messages(messages)
    assert caught.value.path == path
    assert caught.value.message


@pytest.mark.parametrize(
    ("part", "tool", "data", "name"),
    [
        ({"type": "tool-a-b"}, True, False, "a-b"),
        ({"type": "dynamic-tool", "toolName": "x"}, True, False, "x"),
        ({"type": "data-x"}, False, True, None),
        ({"type": "text"}, False, False, None),
        ({}, False, False, None),
    ],
    ids=repr,
)
def test_parts_are_told_apart_by_their_type(part: dict[str, Any], tool: bool, data: bool, name: str | None) -> None:
    assert (is_tool_part(part), is_data_part(part)) == (tool, data)
    if name is not None:
        assert tool_name(part) == name


def test_a_call_is_settled_by_a_final_result_only() -> None:
    settled = {state for state in ToolState if is_settled({"state": state.value})}

    assert settled == {ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED}
    assert not is_settled({"state": "output-available", "preliminary": True})
