"""One watcher of one thread."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from pai.log.frames import Batch, Deleted, Frame, Reset
from pai.log.mailbox import Mailbox


class Position(NamedTuple):
    """Where a watch begins. `revision` is the log's as of then."""

    sequence: int
    revision: int


class Subscription:
    """An async iterator over lists of frames: all that waits, in order. It ends after Deleted, and when the hub closes.

    `ready` is the position that the first frame continues from.
    """

    def __init__(self, on_overflow: Callable[[], Reset], *, max_count: int, max_bytes: int) -> None:
        self.ready = Position(0, 0)
        self._mailbox: Mailbox[Frame] = Mailbox(on_overflow, max_count=max_count, max_bytes=max_bytes)
        self._caught_up = 0
        self._skip_sequence = 0
        self._skip_revision = 0

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> list[Frame]:
        while not self._mailbox.closed:
            if frames := await self.next():
                return frames
        raise StopAsyncIteration

    @property
    def ended(self) -> bool:
        """Nothing will come any more."""
        return self._mailbox.closed

    async def next(self, *, timeout: timedelta | None = None) -> list[Frame]:
        """The frames that wait, at least one; none after the timeout or when the subscription has ended."""
        await self._mailbox.wait(timeout=timeout)
        return self.take()

    def take(self) -> list[Frame]:
        """The frames that wait, without waiting. A reset is always the last of a list, so that what follows is read
        after `skip_to`."""
        frames: list[Frame] = []
        waiting = self._mailbox.take()
        for index, frame in enumerate(waiting):
            if isinstance(frame, Batch):
                rest = frame.after(self._skip_sequence)
                if rest is not None:
                    frames.append(rest)
            elif not self._covers(frame):
                frames.append(frame)
                self._skip_sequence = min(self._skip_sequence, frame.event.sequence)
                self._mailbox.put_first(waiting[index + 1 :])
                break
        return frames

    def _covers(self, frame: Reset | Deleted) -> bool:
        """Whether a snapshot that was sent is what this reset asks for."""
        return (
            isinstance(frame, Reset)
            and frame.event.sequence <= self._skip_sequence
            and frame.revision is not None
            and frame.revision <= self._skip_revision
        )

    def skip_to(self, sequence: int, *, revision: int) -> None:
        """Leaves out what a snapshot of this sequence and revision holds already. Call it after sending a snapshot."""
        self._skip_sequence = sequence
        self._skip_revision = revision

    def push(self, frame: Frame) -> None:
        """For the topic: what came live."""
        if isinstance(frame, Batch):
            rest = frame.after(self._caught_up)
            if rest is not None:
                self._mailbox.put(rest, count=len(rest.events), size=rest.size)
            return
        # A log that was restored from an older state goes on below the position that was reached before.
        self._caught_up = min(self._caught_up, frame.event.sequence)
        self._mailbox.put(frame)
        if isinstance(frame, Deleted):
            self._mailbox.close()

    def begin(self, frames: list[Frame], *, ready: Position, up_to: int) -> None:
        """For the topic: what was read from the log goes before what came live since, of which only what is newer than
        `up_to` remains."""
        live = self._mailbox.take()
        self.ready = ready
        self._caught_up = up_to
        self._mailbox.put_first(frames)
        for frame in live:
            self.push(frame)
        if frames and isinstance(frames[-1], Deleted):
            self._mailbox.close()

    def end(self) -> None:
        """For the hub."""
        self._mailbox.close()
