"""Text is cleaned once, where it enters, so that what is streamed equals what is stored.

PostgreSQL text, UTF-8 and the JSON codec refuse NUL or lone surrogates; JavaScript, providers and tools produce both.
"""

import re
from typing import Any

from pai.protocol.errors import ValidationFailed

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_DEPTH = 200
"""Nested lists and objects of one application value. The codec stops at 254, and messages and snapshots wrap values."""

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_DIRTY = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\0\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class NotJson(ValidationFailed, ValueError):
    """A value that JSON cannot hold, or that is nested too deep."""

    title = "The value is not JSON"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class _Found(Exception):
    """Carries the keys from the bad value up to the root while the recursion unwinds."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.keys: list[str] = []


def _join(pair: str) -> str:
    return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + (ord(pair[1]) - 0xDC00))


def clean_text(text: str) -> str:
    """NUL and lone surrogates become U+FFFD, a split pair becomes its character. The same object when clean."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    if _DIRTY.search(text) is None:
        return text
    return _DIRTY.sub(lambda found: _join(found[0]) if len(found[0]) == 2 else REPLACEMENT, text)


def join_surrogates(text: str) -> str:
    """Surrogate pairs become their characters, lone surrogates stay: how a JavaScript string reads when it is whole."""
    if text.isascii():
        return text
    return _PAIR.sub(lambda found: _join(found[0]), text)


def clean(value: Any) -> Any:
    """`value` as clean JSON: texts and keys cleaned, tuples as lists. The same object when there was nothing to do.

    Raises NotJson for NaN, infinities, integers beyond 64 bits, keys that are no strings, foreign types, and more than
    `MAX_DEPTH` levels (which includes a value that contains itself).
    """
    try:
        return _clean(value, 0)
    except _Found as found:
        raise NotJson(".".join(reversed(found.keys)), found.message) from None


def _clean(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if _MIN_INTEGER <= value <= _MAX_INTEGER:
            return value
        raise _Found("an integer of more than 64 bits")
    if kind is float:
        if value - value == 0:  # false for NaN and infinities, and cheaper than two calls
            return value
        raise _Found("NaN and infinity are not JSON")
    if kind is dict:
        return _clean_object(value, depth)
    if kind is list:
        return _clean_array(value, depth)
    return _clean_subclass(value, depth)


def _clean_object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise _Found(f"more than {MAX_DEPTH} levels")
    result: dict[str, Any] = {}
    same = True
    for key, item in value.items():
        try:
            if not isinstance(key, str):
                raise _Found("a key that is no string")
            name, new = clean_text(key if type(key) is str else str.__str__(key)), _clean(item, depth + 1)
        except _Found as found:
            found.keys.append(str(key))
            raise
        same = same and name is key and new is item
        result[name] = new
    return value if same else result


def _clean_array(value: list[Any], depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise _Found(f"more than {MAX_DEPTH} levels")
    result: list[Any] = []
    same = True
    for index, item in enumerate(value):
        try:
            new = _clean(item, depth + 1)
        except _Found as found:
            found.keys.append(str(index))
            raise
        same = same and new is item
        result.append(new)
    return value if same else result


def _clean_subclass(value: Any, depth: int) -> Any:
    """Enum members and other subclasses become the plain value they carry."""
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        return _clean(int(value), depth)
    if isinstance(value, float):
        return _clean(float(value), depth)
    if isinstance(value, dict):
        return _clean_object(dict(value), depth)
    if isinstance(value, (list, tuple)):
        return _clean_array(list(value), depth)
    raise _Found(f"{type(value).__name__} is not JSON")


class DeltaCleaner:
    """Cleans a streamed text: a high surrogate at the end of a delta waits for its other half in the next."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, delta: str) -> str:
        """The clean part of the text so far that was not given out yet; may be empty."""
        text = self._held + delta
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            return clean_text(text[:-1])
        self._held = ""
        return clean_text(text)

    def flush(self) -> str:
        """What was still held back when the text ends."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""
