"""Frames: what watchers get, with the envelope spliced around the stored bytes.

Nothing is decoded: a batch is spliced once, joined once, and shared by all watchers of its thread.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pai.log.entries import Entry, EntryKind, ResetReason
from pai.protocol.json import dumps


class Event(NamedTuple):
    """`data` is the JSON of the event in its envelope."""

    sequence: int
    revision: int | None
    data: bytes


def _sse(version: bytes, events: Iterable[Event]) -> bytes:
    return b"".join([b"id: %b:%d\ndata: %b\n\n" % (version, event.sequence, event.data) for event in events])


class Batch:
    """Contiguous chunks and updates."""

    __slots__ = ("_joined", "_version", "events", "size")

    def __init__(self, version: bytes, events: Sequence[Event]) -> None:
        self._version = version
        self._joined: bytes | None = None
        self.events = events
        self.size = sum(len(event.data) for event in events)

    @classmethod
    def join(cls, batches: "Sequence[Batch]") -> "Batch":
        """One batch of several neighbours, at least one."""
        if len(batches) == 1:
            return batches[0]
        return cls(batches[0]._version, [event for batch in batches for event in batch.events])

    @property
    def last(self) -> int:
        return self.events[-1].sequence

    def after(self, sequence: int) -> "Batch | None":
        """What of it is newer, or None."""
        if self.events[0].sequence > sequence:
            return self
        events = [event for event in self.events if event.sequence > sequence]
        return Batch(self._version, events) if events else None

    def sse(self) -> bytes:
        """The server-sent events, ready to be sent."""
        if self._joined is None:
            self._joined = _sse(self._version, self.events)
        return self._joined


class Reset(NamedTuple):
    """The watcher must take a snapshot. `revision`: the snapshot is at least of this one, when known."""

    version: str
    reason: ResetReason
    revision: int | None
    event: Event

    @property
    def last(self) -> int:
        return self.event.sequence

    def sse(self) -> bytes:
        return _sse(self.version.encode(), [self.event])


class Deleted(NamedTuple):
    """This incarnation is gone; nothing follows."""

    version: str
    event: Event

    @property
    def last(self) -> int:
        return self.event.sequence

    def sse(self) -> bytes:
        return _sse(self.version.encode(), [self.event])


Frame = Batch | Reset | Deleted


class Envelope:
    """Splices the envelope of one thread."""

    def __init__(self, version: str, thread_id: str) -> None:
        self.version = version
        self._version = version.encode()
        tail = b'","threadId":%b,"version":%b,"sequence":' % (dumps(thread_id), dumps(version))
        self._chunk = b'{"type":"chunk' + tail
        self._update = b'{"type":"update' + tail
        self._reset = b'{"type":"reset' + tail
        self._deleted = b'{"type":"deleted' + tail
        self._references: dict[bytes, bytes] = {}

    def frames(self, entries: Iterable[Entry]) -> list[Frame]:
        """The frames of entries in order: neighbours are joined, resets stand alone."""
        frames: list[Frame] = []
        events: list[Event] = []
        for entry in entries:
            match entry.kind:
                case EntryKind.CHUNK:
                    events.append(self._chunk_event(entry))
                    continue
                case EntryKind.UPDATE:
                    data = b'%b%d,"revision":%d,"changes":%b}' % (
                        self._update,
                        entry.sequence,
                        entry.revision or 0,
                        entry.body,
                    )
                    events.append(Event(entry.sequence, entry.revision, data))
                    continue
            if events:
                frames.append(Batch(self._version, events))
                events = []
            if entry.kind is EntryKind.RESET:
                frames.append(self.reset(entry.sequence, ResetReason(entry.body.decode()), revision=entry.revision))
            else:
                frames.append(self.deleted(entry.sequence))
        if events:
            frames.append(Batch(self._version, events))
        return frames

    def reset(self, sequence: int, reason: ResetReason, *, revision: int | None = None) -> Reset:
        data = b'%b%d,"reason":"%b"}' % (self._reset, sequence, reason.encode())
        return Reset(self.version, reason, revision, Event(sequence, revision, data))

    def deleted(self, sequence: int) -> Deleted:
        return Deleted(self.version, Event(sequence, None, b"%b%d}" % (self._deleted, sequence)))

    def _chunk_event(self, entry: Entry) -> Event:
        reference = self._references.get(entry.field)
        if reference is None:
            reference = b',"runId":%b,"messageId":%b' % (dumps(entry.run_id), dumps(entry.message_id))
            if len(self._references) >= 256:
                self._references.clear()
            self._references[entry.field] = reference
        if entry.revision is None:
            data = b'%b%d%b,"chunk":%b}' % (self._chunk, entry.sequence, reference, entry.body)
        else:
            data = b'%b%d%b,"revision":%d,"chunk":%b}' % (
                self._chunk,
                entry.sequence,
                reference,
                entry.revision,
                entry.body,
            )
        return Event(entry.sequence, entry.revision, data)
