"""A live channel: what one attempt of a model step has written, what of it is in the log, and where.

An entry is waiting, then in the batch that is under way, then acknowledged. The batch under way is sent again unchanged
until its fate is known, because its number is what makes repeating it harmless.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from pai.log.batches import LiveBatch, PublishResult, PublishStatus
from pai.log.entries import Field, ResetReason, check_field
from pai.log.errors import Fenced, LogError

BATCH_ENTRIES = 1_000
BATCH_BYTES = 1 << 20
WAITING_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """How a channel goes on after its log was lost.

    `epoch`: the thread's epoch in SQL now. `opening`: this step raised it, so it opens the log. `revision`: the
    thread's revision as of the transaction that stored the folding. `covered`: `channel.written` as of that folding:
    entries up to there are in SQL and are not sent again; watchers get them with the snapshot that the reset asks for.
    """

    epoch: int
    opening: bool
    revision: int
    covered: int


OnLost = Callable[["LiveChannel"], Awaitable[Reopening]]


class LiveChannel:
    """Made by `Publisher.channel`. Not for use from several threads.

    `epoch` is the one it publishes under, `sequence` the last sequence it was given (0 before any), `written` how many
    entries it took so far. Nothing is sent before `after` is done.
    """

    def __init__(
        self,
        version: str,
        *,
        epoch: int,
        number: int,
        attempt: int,
        on_lost: OnLost,
        wake: Callable[["LiveChannel"], None],
        after: asyncio.Future[None] | None = None,
    ) -> None:
        self.version = version
        self.epoch = epoch
        self.number = number
        self.attempt = attempt
        self.sequence = 0
        self.written = 0
        self._on_lost = on_lost
        self._wake = wake
        self._waiting: deque[Field] = deque()
        self._waiting_bytes = 0
        self._under_way: LiveBatch | None = None
        self._batch = 0
        self._acknowledged = 0
        self._covered = 0
        self._reopening: Reopening | None = None
        self._recovering = False
        self._failure: Exception | None = None
        self._changed: list[asyncio.Future[None]] = []
        self._after = after
        if after is not None:
            after.add_done_callback(lambda _: wake(self))

    def write(self, field: bytes, body: bytes) -> None:
        """Takes one entry; it leaves with the next batch. Raises Fenced, or ValueError for what is no JSON."""
        if self._failure is not None:
            raise self._failure
        check_field(field, body)
        self._waiting.append((field, body))
        self._waiting_bytes += len(field) + len(body)
        self.written += 1
        self._wake(self)

    @property
    def has_room(self) -> bool:
        """Whether less than 256 KiB wait to be sent."""
        return self._waiting_bytes < WAITING_BYTES

    async def room(self) -> None:
        """Returns when it has room: the back-pressure on whoever writes. Raises Fenced."""
        await self._until(lambda: self.has_room)

    async def flush(self) -> int:
        """Returns the last sequence when all that was written before is in the log (or, after a loss, in SQL).

        0 when this channel never published. Raises Fenced when the right to publish is lost, and whatever `on_lost`
        raised.
        """
        target = self.written
        await self._until(lambda: self._acknowledged >= target)
        return self.sequence

    def close(self) -> None:
        """Gives up what was not sent, as when the step is abandoned. Whoever waits in `flush` is told Fenced."""
        if self._failure is None:
            self._fail(Fenced("The channel was closed."))

    async def _until(self, done: Callable[[], bool]) -> None:
        while self._failure is None and not done():
            future = asyncio.get_running_loop().create_future()
            self._changed.append(future)
            await future
        if self._failure is not None:
            raise self._failure

    def _notify(self) -> None:
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._waiting.clear()
        self._under_way = None
        self._notify()

    @property
    def pending(self) -> bool:
        """For the publisher: whether there is something to send."""
        return self._under_way is not None or bool(self._waiting) or self._reopening is not None

    def take(self) -> LiveBatch | None:
        """For the publisher: the batch that is to be sent now, if any."""
        if self._failure is not None or self._recovering or (self._after is not None and not self._after.done()):
            return None
        if self._under_way is None and (self._waiting or self._reopening):
            entries: list[Field] = []
            size = 0
            while self._waiting and len(entries) < BATCH_ENTRIES and size < BATCH_BYTES:
                entry = self._waiting.popleft()
                entries.append(entry)
                size += len(entry[0]) + len(entry[1])
            self._batch += 1
            self._under_way = LiveBatch(
                version=self.version,
                epoch=self.epoch,
                number=self.number,
                attempt=self.attempt,
                batch=self._batch,
                entries=entries,
                seen=self.sequence,
            )
            if reopening := self._reopening:
                self._reopening = None
                self._under_way = replace(
                    self._under_way,
                    opening=reopening.opening,
                    revision=reopening.revision,
                    reason=ResetReason.LOST,
                    seen=0,
                )
        return self._under_way

    def unanswered(self) -> None:
        """For the publisher: nobody knows whether the batch under way is in the log.

        It goes again, but never as an opening: after another loss that would give numbers a second time. If it had
        opened the log it is a duplicate now, and otherwise the answer is `lost`.
        """
        if self._under_way is not None and self._under_way.opening:
            self._under_way = replace(self._under_way, opening=False)

    def settle(self, outcome: PublishResult | LogError) -> bool:
        """For the publisher: what became of the batch under way. True when the log was lost: call `recover`."""
        if self._failure is not None or self._under_way is None:
            return False
        if isinstance(outcome, LogError):
            self._fail(outcome)
            return False
        match outcome.status:
            case PublishStatus.PUBLISHED | PublishStatus.DUPLICATE:
                entries = self._under_way.entries
                self._acknowledged += len(entries) + self._covered
                self._covered = 0
                self._waiting_bytes -= sum(len(field) + len(body) for field, body in entries)
                self.sequence = outcome.last
                self._under_way = None
                self._notify()
            case PublishStatus.LOST:
                self._recovering = True
                return True
            case PublishStatus.DELETED:
                self._fail(Fenced("The thread was deleted.", deleted=True))
            case _:
                self._fail(Fenced())
        return False

    async def recover(self) -> None:
        """For the publisher: asks the engine how to go on, and prepares a batch that begins with a reset."""
        try:
            reopening = await self._on_lost(self)
            if self._failure is not None:
                return
            self._resume(reopening)
        except Exception as error:
            self._fail(error)
        self._wake(self)

    def _resume(self, reopening: Reopening) -> None:
        unsent = [*(self._under_way.entries if self._under_way else ()), *self._waiting]
        known = self._acknowledged + self._covered
        covered = reopening.covered - known
        if not 0 <= covered <= len(unsent):
            raise ValueError(f"covered must be from {known} to {self.written}, not {reopening.covered}")
        self._covered += covered
        self._waiting = deque(unsent[covered:])
        self._waiting_bytes = sum(len(field) + len(body) for field, body in self._waiting)
        self._under_way = None
        self._reopening = reopening
        self.epoch = reopening.epoch
        self._recovering = False
        self._notify()
