"""JSON Schemas from clients: bounded, closed to the outside, and never a way to keep a server busy."""

from collections.abc import Mapping
from typing import Any

import pytest

from pai.contract.json_schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, JsonSchema
from pai.contract.reference_cost import ReferenceCost
from pai.protocol.errors import ValidationFailed

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "additionalProperties": False,
        }
    },
}


def laughs(levels: int) -> dict[str, Any]:
    """A schema of `levels` short lines that stands for 2 to the power of `levels` checks."""
    chain = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$defs": {**chain, f"d{levels}": {"type": "number"}}, "$ref": "#/$defs/d0"}


def forked() -> dict[str, Any]:
    """Every level of a value is checked twice as often as the one above it."""
    arms = [{"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": [key]} for key in ("x", "y")]
    return {"$defs": {"n": {"anyOf": arms}}, "$ref": "#/$defs/n"}


def nested(levels: int, *, key: str = "a") -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {key: value}
    return value


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "an object or a boolean"),
        ("string", "an object or a boolean"),
        ([], "an object or a boolean"),
        ({"type": "objct"}, "no JSON Schema"),
        ({"pattern": "("}, "no JSON Schema"),
        ({"pattern": "(a{1000}){1000}"}, "no JSON Schema"),
        ({"minimum": float("nan")}, "NaN"),
        ({"title": "x" * MAX_SCHEMA_BYTES}, f"at most {MAX_SCHEMA_BYTES} bytes"),
        (nested(MAX_SCHEMA_DEPTH + 1, key="not"), f"at most {MAX_SCHEMA_DEPTH} levels"),
        ({"$ref": "https://example.com/schema"}, "only point inside"),
        ({"$ref": "file:///etc/passwd"}, "only point inside"),
        ({"$ref": "other.json#/a"}, "only point inside"),
        ({"items": {"anyOf": [{"$ref": "//example.com/a"}]}}, "only point inside"),
        ({"$dynamicRef": "https://example.com/schema"}, "only point inside"),
        ({"$dynamicRef": "#node"}, "not supported"),
        ({"$ref": "#node"}, "a pointer inside"),
        ({"$ref": "#/$defs/none"}, "points to nothing"),
        ({"$schema": "https://example.com/dialect"}, "dialect"),
        ({"properties": {"a": {"$id": "https://example.com/a", "$ref": "#/b"}}}, "only supported at the root"),
        ({"$ref": "#"}, "back to itself"),
        (
            {
                "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
                "$ref": "#/$defs/a",
            },
            "back",
        ),
    ],
)
def test_a_schema_that_could_do_harm_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ValidationFailed, match=message.replace("(", r"\(")) as caught:
        JsonSchema(document, at="clientTools.0.inputSchema")
    assert caught.value.errors[0].path.startswith("clientTools.0.inputSchema")


@pytest.mark.parametrize(
    ("document", "value"),
    [
        (True, {"any": "thing"}),
        ({}, None),
        (TREE, {"name": "a", "children": [{"children": []}, {"name": "b"}]}),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"a": {"type": "string"}},
                "$ref": "#/definitions/a",
            },
            "",
        ),
        ({"$id": "https://example.com/root", "$defs": {"a/b": {"const": 1}}, "$ref": "#/$defs/a~1b"}, 1),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "https://example.com"}),
        ({"pattern": r"^(?!x)\w+$"}, "abc"),
        ({"format": "no-such-format"}, "anything"),
    ],
)
def test_an_ordinary_schema_takes_what_it_describes_unchanged(document: Any, value: Any) -> None:
    assert JsonSchema(document).parse(value) is value


@pytest.mark.parametrize(
    ("document", "value", "paths"),
    [
        (False, 1, ["output"]),
        ({"type": "boolean"}, "true", ["output"]),
        (TREE, {"children": [{}, {"name": 1, "more": 2}]}, ["output.children.1", "output.children.1.name"]),
        ({"required": ["a", "b"]}, {}, ["output", "output"]),
    ],
)
def test_other_values_are_refused_with_their_paths(document: Any, value: Any, paths: list[str]) -> None:
    with pytest.raises(ValidationFailed) as caught:
        JsonSchema(document).parse(value, at="output")
    assert sorted(error.path for error in caught.value.errors) == paths


def test_a_message_does_not_repeat_the_value() -> None:
    with pytest.raises(ValidationFailed) as caught:
        JsonSchema({"type": "number"}).parse("s3cret" * 1000)
    assert "s3cret" not in str(caught.value)


def test_a_pattern_that_backtracks_for_ever_does_not_match() -> None:
    with pytest.raises(ValidationFailed):
        JsonSchema({"pattern": r"^(?=(a+)+$)a"}).parse("a" * 5000 + "b")


@pytest.mark.parametrize("levels", [5, 16, 26, 60, 400])
def test_chains_of_references_cannot_keep_a_server_busy(levels: int) -> None:
    with pytest.raises(ValidationFailed):
        JsonSchema(laughs(levels)).parse("text")


@pytest.mark.parametrize("levels", [3, 15, 25, 150])
def test_recursion_that_forks_cannot_keep_a_server_busy(levels: int) -> None:
    with pytest.raises(ValidationFailed):
        JsonSchema(forked()).parse(nested(levels))


def test_the_cost_of_references_is_counted() -> None:
    def cost(document: Mapping[str, Any]) -> tuple[int, int]:
        counted = ReferenceCost(document)
        return counted.subschemas, counted.branching

    assert cost({"type": "string"}) == (1, 0)
    assert cost({"properties": {"a": {}, "b": {"items": {}}}, "$defs": {"unused": {"anyOf": [{}] * 9}}}) == (4, 0)
    assert cost(laughs(3)) == (1 + 3 * 7 + 8, 0)
    assert cost(TREE) == (1 + 5, 1)
    assert cost(forked())[1] == 2
    # What leads into a circle from above does not make it fork.
    assert cost({"properties": {key: {"$ref": "#/$defs/node"} for key in "abc"}, "$defs": TREE["$defs"]}) == (
        4 + 3 * 5,
        1,
    )


def test_a_tree_of_any_depth_may_be_checked_against_a_recursive_schema() -> None:
    value: dict[str, Any] = {}
    for _ in range(90):
        value = {"name": "x", "children": [value]}
    assert JsonSchema(TREE).parse(value) is value
