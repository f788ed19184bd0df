"""The input of a tool call is an object of clean JSON, or the reason why it is none."""

from typing import Any

import pytest

from pai.models.tool_input import parse_tool_input


def test_nothing_is_an_empty_object() -> None:
    assert parse_tool_input("").value == parse_tool_input(None).value == parse_tool_input({}).value == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"n": 9007199254740993}', {"n": 9007199254740993}),
        ('{"n": 18446744073709551616}', {"n": 18446744073709551616.0}),
        ('{"n": -0}', {"n": 0}),
        ('{"n": 18446744073709551615}', {"n": 2**64 - 1}),
        ('{"n": -9223372036854775808}', {"n": -(2**63)}),
        ('{"n": -9223372036854775809}', {"n": -9223372036854775808.0}),
        ('{"t": "\\ud83d\\ude00"}', {"t": "😀"}),
        (' {"a": []} ', {"a": []}),
    ],
)
def test_values_are_kept_exactly_where_json_can_hold_them(text: str, value: Any) -> None:
    assert parse_tool_input(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "{",
        '{"a":1}{',
        '{"a":1e999}',
        '{"a":Infinity}',
        "\ufeff{}",
        '{"a":"\n"}',
        '{"a":' * 5000,
        '{"a":' * 300 + "1" + "}" * 300,
    ],
)
def test_everything_else_is_an_error_that_keeps_the_text(text: str) -> None:
    read = parse_tool_input(text)
    assert read.error
    assert read.value == text


@pytest.mark.parametrize("digits", [310, 4300, 4301, 100_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_that_no_double_can_hold_is_an_error_that_keeps_the_text(digits: int, sign: str) -> None:
    text = '{"a": ' + sign + "9" * digits + "}"
    read = parse_tool_input(text)
    assert (read.error, read.value) == ("The input is not valid JSON: NaN and infinity are not JSON.", text)
