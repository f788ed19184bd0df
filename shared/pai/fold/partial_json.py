"""The JSON of a tool input while it streams: the longest beginning that can be closed into a value.

It follows the AI SDK's parser with its quirks, so that every client shows the same partial input. Work is proportional
to the new text, except for the final C-speed parse.
"""

import json
import math
import re
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from pai.fold.repair import Repair


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""No value: JavaScript's undefined, which JSON leaves out. (None is null.)"""

SUCCESSFUL, REPAIRED, FAILED = "successful-parse", "repaired-parse", "failed-parse"

_UNDERSCORE = r"(?:_|\\u005[Ff])"
_PROTO = re.compile(
    rf'"{_UNDERSCORE}{{2}}(?:p|\\u0070)(?:r|\\u0072)(?:o|\\u006[Ff])(?:t|\\u0074)(?:o|\\u006[Ff]){_UNDERSCORE}{{2}}"\s*:'
)
_CONSTRUCTOR = re.compile(
    r'"(?:c|\\u0063)(?:o|\\u006[Ff])(?:n|\\u006[Ee])(?:s|\\u0073)(?:t|\\u0074)(?:r|\\u0072)'
    r'(?:u|\\u0075)(?:c|\\u0063)(?:t|\\u0074)(?:o|\\u006[Ff])(?:r|\\u0072)"\s*:'
)
_CLOSERS = {"{": "}", "[": "]", '"': '"'}
_WHITESPACE = " \t\n\r"
_SAFE_INTEGER = 2**53


def _number(text: str) -> int | float | None:
    """A JSON number as JavaScript prints it: a double, whole ones without a fraction, infinity as null."""
    value = float(text)
    if not math.isfinite(value):
        return None
    if not value.is_integer() or abs(value) >= 1e21:
        return value
    return int(value) if abs(value) <= _SAFE_INTEGER else int(Decimal(repr(value)))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_no_constant)


def _forbidden(value: Any) -> bool:
    """Whether an object anywhere has a key `__proto__`, or a `constructor` object with a key `prototype`."""
    open_values = [value]
    while open_values:
        node = open_values.pop()
        if isinstance(node, dict):
            if "__proto__" in node:
                return True
            constructor = node.get("constructor")
            if isinstance(constructor, dict) and "prototype" in constructor:
                return True
            open_values.extend(node.values())
        elif isinstance(node, list):
            open_values.extend(node)
    return False


def parse_strict(text: str) -> Any:
    """What JSON.parse gives, or `ABSENT`: also for keys that reach a JavaScript prototype, and for too deep nesting."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return ABSENT
    if isinstance(value, (dict, list)) and (_PROTO.search(text) or _CONSTRUCTOR.search(text)) and _forbidden(value):
        return ABSENT
    return value


def _may_be_whole(text: str) -> bool:
    """False only when a strict parse is bound to fail: it spares a parse of the whole text per delta."""
    start = text.lstrip(_WHITESPACE)[:1] if text[:1] in _WHITESPACE else text[:1]
    closer = _CLOSERS.get(start)
    return closer is None or text.rstrip(_WHITESPACE).endswith(closer)


class PartialJson:
    """A text that grows. `result()` may be asked at any time."""

    __slots__ = ("_repair",)

    def __init__(self, text: str = "") -> None:
        self._repair = Repair(text)

    @property
    def text(self) -> str:
        return self._repair.text

    def feed(self, text: str) -> None:
        self._repair.feed(text)

    def result(self) -> tuple[Any, str]:
        """The value (`ABSENT` when there is none) and one of successful-parse, repaired-parse, failed-parse."""
        text = self._repair.text
        if _may_be_whole(text) and (value := parse_strict(text)) is not ABSENT:
            return value, SUCCESSFUL
        if (value := parse_strict(self._repair.repaired())) is not ABSENT:
            return value, REPAIRED
        return ABSENT, FAILED


def parse_partial_json(text: str | None) -> tuple[Any, str]:
    """The value of a JSON text that may be cut anywhere, and how it was found.

    The state is `successful-parse`, `repaired-parse`, `failed-parse`, or `undefined-input` for None; the last two have
    the value None. Numbers are doubles, infinity is None, and lone surrogate escapes stay lone surrogates.
    """
    if text is None:
        return None, "undefined-input"
    value, state = PartialJson(text).result()
    return None if value is ABSENT else value, state
