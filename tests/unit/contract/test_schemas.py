"""JSON against declared types: strict, closed, and never half-way."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, computed_field
from typing_extensions import TypedDict

from pai.contract.schema import TypeSchema
from pai.protocol.errors import ValidationFailed


class Colour(StrEnum):
    red = "red"


class Inner(BaseModel):
    flag: bool


class Outer(BaseModel):
    inner: Inner
    items: list[Inner] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str = ""


class Loose(BaseModel):
    anything: Any
    number: float = 1.0


class Record(TypedDict):
    name: str


@dataclass
class Point:
    x: int


def schema(hint: Any) -> TypeSchema:
    return TypeSchema(hint, what="test")


def paths(error: ValidationFailed) -> list[str]:
    return [problem.path for problem in error.errors]


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (datetime, "2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        (date, "2026-01-31", date(2026, 1, 31)),
        (timedelta, "PT5S", timedelta(seconds=5)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Decimal, "1.50", Decimal("1.50")),
        (Colour, "red", Colour.red),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (float, 1, 1.0),
        (Literal["a", 1], 1, 1),
        (Point, {"x": 1}, Point(1)),
        (Record, {"name": "a"}, {"name": "a"}),
        (None, None, None),
        (Any, {"a": [None, True]}, {"a": [None, True]}),
        (Inner | None, None, None),
        (str, "\N{PILE OF POO} \0", "\N{PILE OF POO} \0"),
    ],
)
def test_json_is_read_as_the_declared_type(hint: Any, value: Any, expected: Any) -> None:
    assert schema(hint).parse(value) == expected


@pytest.mark.parametrize(
    ("hint", "value", "at"),
    [
        (bool, "true", "payload"),
        (bool, 1, "payload"),
        (int, "1", "payload"),
        (int, True, "payload"),
        (int, 1.5, "payload"),
        (str, 1, "payload"),
        (str, None, "payload"),
        (datetime, 1_700_000_000, "payload"),
        (UUID, "nope", "payload"),
        (Colour, "blue", "payload"),
        (None, {}, "payload"),
        (Inner, None, "payload"),
        (Inner, [], "payload"),
        (Inner, {}, "payload.flag"),
        (Inner, {"flag": "true"}, "payload.flag"),
        (Inner, {"flag": True, "more": 1}, "payload.more"),
        (Outer, {"inner": {"flag": True, "more": 1}}, "payload.inner.more"),
        (Outer, {"inner": {"flag": True}, "items": [{"flag": True}, {"flag": 0}]}, "payload.items.1.flag"),
        (Point, {"x": 1, "y": 2}, "payload.y"),
        (Record, {"name": "a", "more": 1}, "payload.more"),
        (int, 2**70, "payload"),
        (Any, object(), "payload"),
    ],
)
def test_other_json_is_refused_with_its_path(hint: Any, value: Any, at: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        schema(hint).parse(value, at="payload")
    assert paths(caught.value) == [at]


def test_a_model_that_allows_more_keys_keeps_them() -> None:
    assert schema(Open).complete({"name": "a", "more": {"b": 1}}) == {"name": "a", "more": {"b": 1}}


@pytest.mark.parametrize("hint", [Inner, Record, Point])
def test_a_closed_type_says_so_in_its_json_schema(hint: Any) -> None:
    assert schema(hint).json_schema["additionalProperties"] is False


def test_an_open_type_does_not_say_that_it_is_closed() -> None:
    assert schema(Open).json_schema["additionalProperties"] is True


def test_no_more_than_twenty_errors_are_listed() -> None:
    with pytest.raises(ValidationFailed) as caught:
        schema(list[int]).parse(["a"] * 1000)
    assert len(caught.value.errors) == 20


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Inner, Inner(flag=True), {"flag": True}),
        (Inner, {"flag": True}, {"flag": True}),
        (datetime, datetime(2026, 1, 31, 9, tzinfo=UTC), "2026-01-31T09:00:00Z"),
        (Any, {"when": date(2026, 1, 31), "what": (1, Colour.red)}, {"when": "2026-01-31", "what": [1, "red"]}),
        (None, None, None),
        (str, "a\0\ud800", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (Any, {"a\0": "\ud83d\ude00"}, {"a\N{REPLACEMENT CHARACTER}": "\N{GRINNING FACE}"}),
    ],
)
def test_values_are_written_as_clean_json(hint: Any, value: Any, expected: Any) -> None:
    assert schema(hint).dump(value) == expected


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Inner, None),
        (Inner, {"flag": "perhaps"}),
        (None, 1),
        (str, 1),
        (float, math.nan),
        (Any, {"a": [math.inf]}),
        (Loose, Loose(anything={"a": (1, {math.nan})})),
        (Loose, Loose(anything=None, number=math.inf)),
        (Any, object()),
        (Any, {1: 2, "1": object()}),
        (Any, cyclic()),
        (int, 2**70),
    ],
)
def test_what_is_no_json_of_the_declared_type_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises(ValidationFailed) as caught:
        schema(hint).dump(value, at="output")
    assert paths(caught.value)[0].startswith("output")


def test_completing_applies_defaults() -> None:
    assert schema(Outer).complete({"inner": {"flag": True}}) == {"inner": {"flag": True}, "items": []}


def test_what_was_written_can_be_loaded_although_it_has_computed_fields() -> None:
    class Square(BaseModel):
        side: int

        @computed_field
        def area(self) -> int:
            return self.side**2

    written = schema(Square).dump(Square(side=2))
    assert written == {"side": 2, "area": 4}
    assert schema(Square).load(written) == Square(side=2)
