"""What is wrong with a field, in PAI's words: pydantic's own speak of Python, and some of them quote what was sent."""

from collections.abc import Mapping
from typing import Any

MAX_MESSAGE = 300
_OBJECT, _ARRAY, _INTEGER, _NUMBER = "must be an object", "must be an array", "must be an integer", "must be a number"
_BOOLEAN = "must be true or false"

_MESSAGES: Mapping[str, str] = {
    "missing": "is missing",
    "missing_argument": "is missing",
    "missing_keyword_only_argument": "is missing",
    "extra_forbidden": "is no known key",
    "unexpected_keyword_argument": "is no known key",
    "string_type": "must be a string",
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "none_required": "must be null",
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "list_type": _ARRAY,
    "tuple_type": _ARRAY,
    "set_type": _ARRAY,
    "frozen_set_type": _ARRAY,
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_not_found": "must have the key {discriminator}",
    "union_tag_invalid": "must have the key {discriminator} with one of {expected_tags}",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters at most",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have {min_length} items or more",
    "too_long": "must have {max_length} items at most",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "multiple_of": "must be a multiple of {multiple_of}",
    "time_delta_type": "must be a duration",
    "time_delta_parsing": "must be a duration",
    "recursion_loop": "must not contain itself",
}
_EMPTY = frozenset({"string_too_short", "too_short"})
_PREFIXES = (
    ("Value error, ", ""),
    ("Assertion failed, ", ""),
    ("Input should be a valid ", "must be a valid "),
    ("Input should ", "must "),
    ("Value should ", "must "),
)


def field_message(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as half a sentence that goes on from the field's path: `must be a string`.

    `error` is an item of `ValidationError.errors()`, whose context is needed. Kinds that are not known keep the text
    that they come with, in the same form.
    """
    kind, context = error["type"], error.get("ctx") or {}
    if kind in _EMPTY and context.get("min_length") == 1:
        return "must not be empty"
    try:
        return _MESSAGES[kind].format_map(context)[:MAX_MESSAGE]
    except KeyError:
        return _own_words(str(error["msg"]))[:MAX_MESSAGE]


def _own_words(message: str) -> str:
    for prefix, instead in _PREFIXES:
        if message.startswith(prefix):
            return instead + message.removeprefix(prefix)
    return message
