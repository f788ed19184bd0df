"""The input of a tool call as the model wrote it: an object of clean JSON, or the reason why it is none.

Strict as JavaScript's JSON.parse, and as strict as AI SDK clients are about keys that reach into prototypes: a client
that refuses a chunk loses its whole stream.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pai.protocol.text import NotJson, clean, clean_text


@dataclass(frozen=True)
class ToolInput:
    """`value` is the object, or the text as it came when `error` says what is wrong with it."""

    value: Any
    error: str | None = None


def parse_tool_input(arguments: str | Mapping[str, Any] | None) -> ToolInput:
    """Nothing and the empty text mean `{}`; null, arrays, several values and cut text are errors."""
    if not arguments:
        return ToolInput({})
    try:
        value = _parsed(arguments) if isinstance(arguments, str) else dict(arguments)
        if not isinstance(value, dict):
            return ToolInput(_text(arguments), f"The input must be a JSON object, not {_kind(value)}.")
        _refuse_prototypes(value)
        return ToolInput(clean(value))
    except RecursionError:
        return ToolInput(_text(arguments), "The input is not valid JSON: too deep.")
    except NotJson as error:
        return ToolInput(_text(arguments), f"The input is not valid JSON: {error.message}.")
    except ValueError as error:
        return ToolInput(_text(arguments), f"The input is not valid JSON: {error}.")


def _text(arguments: str | Mapping[str, Any]) -> str:
    return clean_text(arguments if isinstance(arguments, str) else repr(dict(arguments)))


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int | float:
    """Integers of more than 64 bits become doubles, as every number is in JavaScript; infinity is no value of JSON."""
    if len(text) <= 20 and -(2**63) <= (value := int(text)) < 2**64:
        return value
    return float(text)


def _refuse_prototypes(value: Any) -> None:
    """Raises ValueError for an own `__proto__` key, or a `constructor` that holds a `prototype`."""
    if isinstance(value, dict):
        constructor = value.get("constructor")
        if "__proto__" in value or (isinstance(constructor, dict) and "prototype" in constructor):
            raise ValueError("it has a forbidden key")
        for item in value.values():
            _refuse_prototypes(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_prototypes(item)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"
