"""Server-sent events: the frames that a watch writes, and a decoder that reads them as the HTML standard says."""

import re
from dataclasses import dataclass

KEEP_ALIVE = b": keep-alive\n\n"

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def frame(data: bytes, id: bytes | None = None) -> bytes:
    """One event. Compact JSON never holds a raw line break, so `data` is nearly always one line."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    if id is None:
        return b"data: %b\n\n" % data
    return b"id: %b\ndata: %b\n\n" % (id, data)


def comment(text: bytes = b"") -> bytes:
    """A comment: ignored by every client, it keeps a silent connection open. `text` is one line."""
    return b": %b\n\n" % text


@dataclass(frozen=True, slots=True)
class SseEvent:
    """`id` is the last event id as of this event: it stays in force until another one comes, and is "" before any."""

    id: str
    data: str


class SseDecoder:
    """Bytes in any cut, events out. An event whose empty line never came is lost, as the standard asks.

    `event:` and `retry:` fields are ignored: PAI has one kind of event, and a client keeps its own backoff.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._first_line = True
        self._after_cr = False
        self._data: list[str] = []
        self._id = ""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
        if self._after_cr and data:
            # The line ended with the CR already, so that its event did not have to wait for this LF.
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        lines = _LINE_END.split(data)
        rest = lines.pop()
        events: list[SseEvent] = []
        if lines and self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces = []
        for line in lines:
            if self._first_line:
                self._first_line = False
                line = line.removeprefix(_BOM)
            if not line:
                if self._data:
                    events.append(SseEvent(self._id, "\n".join(self._data)))
                    self._data = []
            else:
                self._field(line.decode("utf-8", "replace"))
        if rest:
            self._pieces.append(rest)
        return events

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "id":
            value = value.removeprefix(" ")
            if "\0" not in value:
                self._id = value
