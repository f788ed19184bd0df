"""Text and JSON values cleaned where they enter."""

from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai.protocol.json import dumps, loads, same_json
from pai.protocol.text import MAX_DEPTH, DeltaCleaner, NotJson, clean, clean_text, join_surrogates

HIGH, LOW, GONE = "\ud83d", "\ude00", "\ufffd"
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from(["\0", HIGH, LOW, "\udbff", "\udc00"])))


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("", ""),
        ("plain", "plain"),
        ("é 日本 😀 👩‍💻", "é 日本 😀 👩‍💻"),
        ("\0", GONE),
        ("a\0b\0", f"a{GONE}b{GONE}"),
        ("é\0", f"é{GONE}"),
        (HIGH + LOW, "😀"),
        (HIGH, GONE),
        (LOW, GONE),
        (LOW + HIGH, GONE + GONE),
        (HIGH + HIGH + LOW, GONE + "😀"),
        (f"a{HIGH}b{LOW}c", f"a{GONE}b{GONE}c"),
        ("\ufeff\u200b\x1b", "\ufeff\u200b\x1b"),
    ],
    ids=ascii,
)
def test_nul_and_lone_surrogates_are_replaced_and_pairs_are_joined(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    assert clean({text: [text]}) == {cleaned: [cleaned]}


@settings(max_examples=200)
@given(ANY_TEXT)
def test_a_clean_text_can_be_encoded_and_stays_as_it_is(text: str) -> None:
    cleaned = clean_text(text)

    assert "\0" not in cleaned.encode().decode()
    assert clean_text(cleaned) is cleaned


@settings(max_examples=200)
@given(st.lists(ANY_TEXT))
def test_deltas_are_cleaned_as_the_whole_text_would_be(deltas: list[str]) -> None:
    cleaner = DeltaCleaner()
    pieces = [cleaner.feed(delta) for delta in deltas]

    assert "".join([*pieces, cleaner.flush()]) == clean_text("".join(deltas))
    assert all(clean_text(piece) == piece for piece in pieces)
    assert cleaner.flush() == ""


def test_half_a_pair_waits_for_the_next_delta() -> None:
    cleaner = DeltaCleaner()

    assert [cleaner.feed("a" + HIGH), cleaner.feed(""), cleaner.feed(LOW + "b"), cleaner.flush()] == [
        "a",
        "",
        "😀b",
        "",
    ]


def test_a_javascript_text_keeps_what_it_cannot_join() -> None:
    assert join_surrogates(HIGH + LOW + HIGH + "\0") == "😀" + HIGH + "\0"


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**64 - 1, 1.5, "x", [], {}, {"a": [1, {"b": None}], "é": ["😀"]}],
    ids=repr,
)
def test_a_clean_value_is_handed_through(value: Any) -> None:
    assert clean(value) is value
    assert loads(dumps(value)) == value


def test_only_what_is_dirty_is_made_anew() -> None:
    value = {"dirty": ["\0"], "clean": {"a": [1]}}
    result = clean(value)

    assert result == {"dirty": [GONE], "clean": {"a": [1]}}
    assert result["clean"] is value["clean"]
    assert value["dirty"] == ["\0"]


def test_members_of_enums_and_tuples_become_plain_json() -> None:
    result = clean({Colour.RED: (Colour.RED, Size.BIG)})

    assert result == {"red": ["red", 3]}
    assert [type(each) for each in (*result, *result["red"])] == [str, str, int]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), ""),
        ({"a": [1, float("inf")]}, "a.1"),
        ([float("-inf")], "0"),
        ({"a": {1: 2}}, "a.1"),
        ({None: 1}, "None"),
        (2**64, ""),
        ([-(2**63) - 1], "0"),
        ({"a": b"bytes"}, "a"),
        ({"a": {1, 2}}, "a"),
        pytest.param([object()], "0", id="[object()]"),
    ],
    ids=repr,
)
def test_what_json_cannot_hold_is_a_typed_error_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(NotJson) as caught:
        clean(value)
    assert caught.value.path == path
    assert isinstance(caught.value, ValueError)


def nested(levels: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = make(value)
    return value


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["arrays", "objects"])
def test_depth_has_a_limit_below_what_the_codec_takes(make: Any) -> None:
    deepest = nested(MAX_DEPTH, make)

    assert clean(deepest) is deepest
    assert loads(dumps({"messages": [{"parts": [{"input": deepest}]}]}))
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotJson, match="levels"):
            clean(nested(levels, make))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(NotJson):
        clean(value)


def test_json_is_compared_as_json() -> None:
    assert same_json({"a": 1, "b": [None, True]}, {"b": [None, True], "a": 1})
    for one, other in ((True, 1), (0, False), (1, 1.0), ([], {}), ({"a": None}, {}), ("1", 1)):
        assert not same_json(one, other)
