"""A topic: one watched thread in the hub, its position in the log, and its watchers.

All watchers of a thread share the topic's position. What comes over pub/sub is passed on when it continues from there;
otherwise the log is read, and what came meanwhile waits. Where the log has a gap, watchers get a reset.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pai.log.backoff import Backoff
from pai.log.batches import LogRead, LogState
from pai.log.ending import end
from pai.log.entries import DELETED, Entry, EntryKind, ResetReason, decode_batch
from pai.log.errors import LogError
from pai.log.event_log import EventLog
from pai.log.fan_out import FanOut
from pai.log.frames import Envelope, Frame, Reset
from pai.log.sequences import MAX_SEQUENCE, epoch_of, number_of
from pai.log.subscription import Position, Subscription

CATCH_UP_ENTRIES = 10_000
"""A watcher that is further behind takes a snapshot."""
_PENDING_BATCHES = 10_000

_logger = logging.getLogger(__name__)


def continues(first: Entry, position: int) -> bool:
    """Whether an entry may follow a position; 0 is the position before a log that did not exist."""
    return (
        first.sequence == position + 1
        or (first.kind is EntryKind.RESET and first.sequence > position)
        or (position == 0 and number_of(first.sequence) == 1)
    )


def gap(read: LogRead, position: int) -> ResetReason | None:
    """Why what was read after a position does not continue from it, or None when it does."""
    if read.state is LogState.MISSING:
        return ResetReason.LOST if position else None
    if read.last == position:
        return None
    if read.last < position:
        return ResetReason.LOST
    if read.entries and continues(read.entries[0], position):
        return ResetReason.OVERFLOW if read.entries[-1].sequence < read.last else None
    return ResetReason.TRIMMED if position and read.epoch == epoch_of(position) else ResetReason.LOST


class Topic:
    """`position` and `revision` are what the watchers were given up to; `position` is 0 when there is no log."""

    def __init__(
        self,
        version: str,
        *,
        thread_id: str,
        log: EventLog,
        reads: asyncio.Semaphore,
        current_revision: Callable[[], Awaitable[int | None]],
    ) -> None:
        self.version = version
        self.position = 0
        self.revision = 0
        self.users = 0
        self.deleted = False
        self.primed = asyncio.Event()
        self._log = log
        self._reads = reads
        self._current_revision = current_revision
        self._envelope = Envelope(version, thread_id)
        self._fan_out = FanOut()
        self._waiting: list[bytes] | None = []
        self._forced: ResetReason | None = None
        self._stale = False
        self._task: asyncio.Task[None] | None = None

    def receive(self, data: bytes) -> None:
        """A message of the thread's channel."""
        if self.deleted:
            return
        if self._waiting is None:
            self._advance([data])
        elif len(self._waiting) < _PENDING_BATCHES:
            self._waiting.append(data)
        else:
            self._waiting.clear()
            self._stale = True

    def subscribed(self, *, other_server: bool) -> None:
        """The subscription is in force, for the first time or again: read what was published before it was."""
        if other_server and self.primed.is_set():
            self._forced = ResetReason.RESTART
        self._read_log([])

    def fall_behind(self, revision: int) -> None:
        """SQL has had a revision for a while that was never published."""
        self._fan_out.send([self._envelope.reset(self.position, ResetReason.LOST, revision=revision)])
        self.revision = revision

    def delete(self) -> None:
        """SQL does not have the thread any more."""
        if not self.deleted:
            self.deleted = True
            self._fan_out.send([self._envelope.deleted(self.position + 1)])

    async def attach(self, *, after: int | None, max_count: int, max_bytes: int) -> Subscription:
        """A subscription that continues after a position, or from now. Raises LogUnavailable."""

        def overflow() -> Reset:
            return self._envelope.reset(self._fan_out.position, ResetReason.OVERFLOW, revision=self.revision)

        subscription = Subscription(overflow, max_count=max_count, max_bytes=max_bytes)
        subscription.ready = Position(self.position, self.revision)
        if self.deleted:
            subscription.push(self._envelope.deleted(self.position + 1))
            return subscription
        # Registered before the log is read: whatever is published from here on arrives on one way or the other.
        self._fan_out.add(subscription)
        if after is not None and (after != self.position or not after):
            try:
                await self._catch_up(subscription, after)
            except BaseException:
                self.detach(subscription)
                raise
        return subscription

    def detach(self, subscription: Subscription) -> None:
        self._fan_out.remove(subscription)

    async def close(self) -> None:
        self._fan_out.end()
        await end(self._task)

    async def _catch_up(self, subscription: Subscription, after: int) -> None:
        if not 0 <= after < MAX_SEQUENCE:
            after = MAX_SEQUENCE  # ahead of every log
        async with self._reads:
            read = await self._log.read_after(self.version, sequence=after, limit=CATCH_UP_ENTRIES)
        if read.state is LogState.DELETED:
            frames: list[Frame] = [self._envelope.deleted(after + 1)]
            subscription.begin(frames, ready=Position(after, self.revision), up_to=0)
            return
        reason = gap(read, after)
        revision = max(read.revision, self.revision)
        if reason is None and read.state is LogState.LIVE:
            frames = self._envelope.frames(read.entries)
            subscription.begin(frames, ready=Position(after, revision), up_to=read.last)
        else:
            reset = self._envelope.reset(read.last, reason or ResetReason.LOST)
            subscription.begin([reset], ready=Position(read.last, revision), up_to=read.last)

    def _read_log(self, waiting: list[bytes]) -> None:
        self._stale = True
        if self._waiting is None:
            self._waiting = waiting
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._synchronise(), name=f"pai-topic-{self.version}")

    async def _synchronise(self) -> None:
        """Reads the log until what came live meanwhile continues from it."""
        backoff = Backoff(_logger, f"The log of {self.version} cannot be read")
        while self._stale and not self.deleted:
            self._stale = False
            try:
                async with self._reads:
                    limit = CATCH_UP_ENTRIES if self.primed.is_set() else 0
                    read = await self._log.read_after(self.version, sequence=self.position, limit=limit)
                if not self.primed.is_set():
                    await self._prime(read)
                else:
                    self._apply(read)
            except LogError as error:
                self._stale = True
                await asyncio.sleep(backoff.failed(error))
                continue
            backoff.succeeded()
            if not self._stale:
                waiting, self._waiting = self._waiting or [], None
                self._advance(waiting)

    async def _prime(self, read: LogRead) -> None:
        revision: int | None = read.revision
        if read.state is LogState.MISSING:
            # An idle thread whose log expired: SQL says what watchers can know, and whether the thread exists.
            revision = await self._current_revision()
        self.position, self.revision = read.last, revision or 0
        self.deleted = read.state is LogState.DELETED or revision is None
        self.primed.set()

    def _apply(self, read: LogRead) -> None:
        if read.state is LogState.DELETED:
            self.delete()
            return
        reason = self._forced or gap(read, self.position)
        self._forced = None
        if reason is None:
            self._fan_out.send(self._envelope.frames(read.entries))
        else:
            sequence = read.last or self.position
            self._fan_out.send([self._envelope.reset(sequence, reason)])
        self.position = read.last
        self.revision = max(self.revision, read.revision)

    def _advance(self, messages: list[bytes]) -> None:
        """Passes on live batches that continue from the position; at a gap the log is read."""
        for index, data in enumerate(messages):
            entries = decode_batch(data)
            if entries[0].field == DELETED:
                self.delete()
                return
            if entries[0].sequence <= self.position:
                entries = [entry for entry in entries if entry.sequence > self.position]
                if not entries:
                    continue
            if not continues(entries[0], self.position):
                self._read_log(messages[index:])
                return
            self.position = entries[-1].sequence
            self.revision = max(self.revision, *(entry.revision or 0 for entry in entries))
            self._fan_out.send(self._envelope.frames(entries))
