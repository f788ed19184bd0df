"""Partial JSON beyond the vectors: growth piece by piece, and hostile texts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai.fold.metadata import merge_metadata
from pai.fold.partial_json import ABSENT, PartialJson, parse_partial_json

PIECES = st.lists(
    st.sampled_from([*'{}[]",:\\ue-.0 1', "true", "nul", '"k":', '\\"', "\\ud83d", "😀", "1e5", '{"a":[', '"}']),
    max_size=30,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(PIECES)
def test_a_text_fed_in_pieces_reads_as_the_same_text_at_once(pieces: list[str]) -> None:
    grown, whole = PartialJson(), ""
    for piece in pieces:
        grown.feed(piece)
        whole += piece
        value, state = grown.result()
        assert (None if value is ABSENT else value, state) == parse_partial_json(whole)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_a_whole_json_text_reads_as_its_value(value: Any) -> None:
    assert parse_partial_json(json.dumps(value)) == (value, "successful-parse")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), VALUES, min_size=1, max_size=4), st.data())
def test_an_object_cut_anywhere_still_has_a_value(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))

    partial, state = parse_partial_json(text[:cut])

    assert state == "repaired-parse"
    assert isinstance(partial, dict)
    assert list(partial) == list(value)[: len(partial)]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 3_000 + "]" * 3_000, "9" * 100_000])
def test_a_hostile_text_is_no_crash(text: str) -> None:
    assert parse_partial_json(text)[1] in ("failed-parse", "repaired-parse", "successful-parse")


def test_no_text_is_an_undefined_input() -> None:
    assert parse_partial_json(None) == (None, "undefined-input")


@pytest.mark.parametrize(
    "text",
    [
        '{"__proto__":1}',
        '[{"a":{"__proto__" : null}}]',
        '{"\\u005f_proto_\\u005f":1}',
        '{"constructor":{"prototype":1}}',
        '{"a":[{"c\\u006fnstructor":{"prototype":{}}}]}',
    ],
)
def test_keys_that_reach_a_javascript_prototype_make_the_text_unreadable(text: str) -> None:
    assert parse_partial_json(text) == (None, "failed-parse")


@pytest.mark.parametrize("text", ['{"constructor":1}', '{"prototype":1}', '{"constructor":{"a":1}}', '"__proto__:"'])
def test_keys_that_only_look_like_it_are_read(text: str) -> None:
    assert parse_partial_json(text) == (json.loads(text), "successful-parse")


@pytest.mark.parametrize(
    ("base", "override", "merged"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}}, {"a": None}, {"a": None}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"__proto__": {"b": 1}, "constructor": 1, "prototype": 1}, {"a": 1}),
        ({"a": {}}, {"a": {"__proto__": 1, "b": 2}}, {"a": {"b": 2}}),
        ({}, {"a": {"__proto__": 1}}, {"a": {"__proto__": 1}}),
    ],
)
def test_metadata_is_merged_deeply(base: Any, override: Any, merged: Any) -> None:
    before = json.dumps([base, override])

    assert merge_metadata(base, override) == merged
    assert json.dumps([base, override]) == before
