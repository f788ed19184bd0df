"""Entries: what one line of a batch and one entry of the stream hold, and the bytes they travel as.

A line is `{field}\\t{revision or empty}\\t{body}`. Bodies are compact JSON, which holds no raw tab or line break. The
field says what the entry is: `{runId}/{messageId}` for a chunk (ids hold no slash), `u` for an update, `x` for a reset.
Streams compress a field name that repeats, which makes an entry of a chunk nearly bare.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

Field = tuple[bytes, bytes]
"""(field, body) of one entry that is to be published."""

UPDATE = b"u"
RESET = b"x"
DELETED = b"d"


class EntryKind(StrEnum):
    CHUNK = "chunk"
    UPDATE = "update"
    RESET = "reset"
    DELETED = "deleted"


class ResetReason(StrEnum):
    LOST = "lost"
    TRIMMED = "trimmed"
    OVERFLOW = "overflow"
    VERSION = "version"
    ORDER = "order"
    FAILOVER = "failover"
    RESTART = "restart"


_KINDS = {UPDATE: EntryKind.UPDATE, RESET: EntryKind.RESET, DELETED: EntryKind.DELETED}


class Entry(NamedTuple):
    """One event of a thread. `body` is the JSON of the chunk or of the changes, or the reason of a reset."""

    sequence: int
    field: bytes
    revision: int | None
    body: bytes

    @property
    def kind(self) -> EntryKind:
        return _KINDS.get(self.field, EntryKind.CHUNK)

    @property
    def run_id(self) -> str:
        """Empty for what is no chunk."""
        return self.field.partition(b"/")[0].decode() if self.kind is EntryKind.CHUNK else ""

    @property
    def message_id(self) -> str:
        """Empty for what is no chunk."""
        return self.field.partition(b"/")[2].decode()


def chunk_field(run_id: str, message_id: str) -> bytes:
    """The field of every chunk of this message."""
    return f"{run_id}/{message_id}".encode()


def chunk(run_id: str, message_id: str, body: bytes) -> Field:
    """`body` is the JSON of one UIMessageChunk."""
    return chunk_field(run_id, message_id), body


def update(changes: bytes) -> Field:
    """`changes` is the JSON of the changes that one transaction made."""
    return UPDATE, changes


def check_field(field: bytes, body: bytes) -> None:
    """Raises ValueError for what would break the lines of a batch."""
    if b"\n" in body or not body or not field or b"\n" in field or b"\t" in field:
        raise ValueError(f"not the JSON of an event: field {field[:80]!r}, body {body[:80]!r}")


def encode_lines(fields: Iterable[Field], revision: int | None) -> bytes:
    """The lines of a batch; every entry of a transaction carries its revision. Raises ValueError."""
    middle = b"\t\t" if revision is None else b"\t%d\t" % revision
    lines = []
    for field, body in fields:
        check_field(field, body)
        lines.append(field + middle + body)
    return b"\n".join(lines)


def decode_batch(data: bytes) -> list[Entry]:
    """What was announced on a channel: the first sequence, then contiguous lines."""
    first, *lines = data.split(b"\n")
    entries = []
    for sequence, line in enumerate(lines, int(first)):
        field, revision, body = line.split(b"\t", 2)
        entries.append(Entry(sequence, field, int(revision) if revision else None, body))
    return entries


def decode_log(data: bytes) -> list[Entry]:
    """What was read from the stream: lines that each begin with their sequence."""
    entries = []
    for line in data.split(b"\n") if data else ():
        sequence, field, revision, body = line.split(b"\t", 3)
        entries.append(Entry(int(sequence), field, int(revision) if revision else None, body))
    return entries
