"""Which part of a file a request asks for (RFC 9110, section 14), and whether it has it already."""

import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from pai.protocol.errors import RangeNotSatisfiable

_RANGE = re.compile(r"bytes=\s*(?P<first>[0-9]{0,19})-(?P<last>[0-9]{0,19})\s*\Z", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """`count` bytes from number `first` on; `partial` when the request asked for a part."""

    first: int
    count: int
    partial: bool


def requested_span(headers: Headers, *, size: int, etag: str) -> Span:
    """One range is served; several, or what is no range of bytes, get the whole file, as the standard allows.

    A range that is only good for another version of the file (`If-Range`) does not count. Raises RangeNotSatisfiable.
    """
    whole = Span(0, size, partial=False)
    found = _RANGE.match(headers.get("range", ""))
    if found is None or headers.get("if-range", etag) != etag:
        return whole
    first, last = found["first"], found["last"]
    if not first:
        suffix = int(last) if last else None
        if suffix is None:
            return whole
        if suffix == 0 or size == 0:
            raise RangeNotSatisfiable(byte_size=size)
        return Span(max(0, size - suffix), min(size, suffix), partial=True)
    begin, end = int(first), int(last) if last else size - 1
    if last and end < begin:
        return whole
    if begin >= size:
        raise RangeNotSatisfiable(byte_size=size)
    return Span(begin, min(end, size - 1) - begin + 1, partial=True)


def is_known(headers: Headers, *, etag: str) -> bool:
    """Whether the caller has this version (`If-None-Match`)."""
    tags = [tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")]
    return etag in tags or "*" in tags
