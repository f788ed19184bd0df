"""What a person types becomes the JSON that the tool asked for, or a word about what it takes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pai.cli.answers import NoAnswer, Question, shape
from pai.client.actions import ActionOrigin, PendingActionView, action_ref

APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}, "comment": {"anyOf": []}}}
FILE = {"type": "object", "properties": {"filename": {"type": "string"}}, "required": ["filename"]}
POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {}}, "required": ["x", "y"]}


def question(schema: Mapping[str, Any]) -> Question:
    async def respond(*_: Any) -> Any:
        raise AssertionError("nothing is sent here")

    origin = ActionOrigin(thread_id="t", tool_name="tool", message_id="m", tool_call_id="c", run_id="r")
    ref = action_ref(origin, action_id="c")
    return Question(PendingActionView(name="tool.output", input=None, origin=origin, ref=ref, _respond=respond), schema)


@pytest.mark.parametrize(
    ("schema", "typed", "answer"),
    [
        (APPROVAL, "y", {"approved": True}),
        (APPROVAL, "No", {"approved": False}),
        (APPROVAL, "n too long", {"approved": False, "comment": "too long"}),
        ({"properties": {"approved": {"type": "boolean"}}}, "y nice", {"approved": True}),
        (APPROVAL, '{"approved": true, "comment": null}', {"approved": True, "comment": None}),
        (FILE, "a b.png", {"filename": "a b.png"}),
        (FILE, '{"filename": "x"}', {"filename": "x"}),
        ({"type": "string"}, "T-17", "T-17"),
        ({"type": "string"}, '"quoted"', "quoted"),
        ({"type": "string"}, "17", "17"),
        (FILE, "17", {"filename": "17"}),
        (POINT, '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        ({}, "[1]", [1]),
    ],
)
def test_what_is_typed_becomes_the_payload(schema: dict[str, Any], typed: str, answer: Any) -> None:
    assert question(schema).answer(typed) == answer


@pytest.mark.parametrize(
    ("schema", "typed", "said"),
    [
        (APPROVAL, "maybe", "Answer y or n; a comment may follow."),
        (POINT, "1, 2", 'That is no JSON ({"x":"number","y":"any"}).'),
        ({}, "hello", "That is no JSON."),
        ({}, "NaN", "That is no JSON."),
    ],
)
def test_what_cannot_be_an_answer_says_what_can(schema: dict[str, Any], typed: str, said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        question(schema).answer(typed)
    assert str(raised.value) == said


NESTED = {
    "type": "object",
    "properties": {
        "where": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "how": {"enum": ["fast", "slow"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["where", "how"],
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}


def test_a_schema_is_shown_as_a_small_example() -> None:
    expected = {"where": {"city": "string"}, "tags?": ["string"], "how": "fast | slow", "note?": "string"}
    assert shape(NESTED) == expected
    assert shape({"type": "integer"}) == "integer"
    assert shape({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}) == "any"


def test_what_is_asked_and_what_an_answer_looks_like_are_said() -> None:
    asked = replace(question(FILE), description="Choose a file.")
    assert list(asked.lines) == [
        "tool waits for its output from you: null Choose a file.",
        '  answer: {"filename":"string"}',
    ]
    assert "from another system" in next(replace(asked, external=True).lines)
    assert list(question(APPROVAL).lines)[1] == "  answer: y or n; a comment may follow"
    assert list(question({}).lines)[1] == "  answer: any JSON"


def test_the_prompt_tells_what_is_asked_for() -> None:
    assert question(APPROVAL).prompt == "tool.output? [y/n] "
    assert question(FILE).prompt == 'tool.output ({"filename":"string"}): '
    assert question({}).prompt == "tool.output: "
