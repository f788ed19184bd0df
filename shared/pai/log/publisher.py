"""The publisher of a worker process: all live chunks of all its steps leave through one pipelined batch at a time.

While a batch is under way, what is written gathers for the next one: under load batches grow by themselves, and an idle
process sends every chunk at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from pai.log.backoff import Backoff
from pai.log.batches import LiveBatch, PublishResult
from pai.log.ending import end
from pai.log.errors import LogError, LogUnavailable
from pai.log.event_log import EventLog
from pai.log.live_channel import LiveChannel, OnLost

GATHER = timedelta(milliseconds=5)
BUSY_ENTRIES_PER_SECOND = 1_000
_WINDOW_SECONDS = 0.1

_logger = logging.getLogger(__name__)


class Publisher:
    """An async context manager; leaving it stops sending, so flush the channels first.

    While the server is away everything waits and is sent again, in order and once, when it is back.
    """

    def __init__(
        self, log: EventLog, *, gather: timedelta = GATHER, busy_entries_per_second: int = BUSY_ENTRIES_PER_SECOND
    ) -> None:
        self._log = log
        self._gather_seconds = gather.total_seconds()
        self._busy_entries = busy_entries_per_second * _WINDOW_SECONDS
        self._dirty: dict[LiveChannel, None] = {}
        self._awake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._recoveries: set[asyncio.Task[None]] = set()
        self._window_start = 0.0
        self._window_entries = 0
        self._busy = False
        self._last_sent = 0.0

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_forever(), name="pai-publisher")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._sender, *self._recoveries)
        self._sender = None

    def channel(
        self,
        version: str,
        *,
        epoch: int,
        number: int,
        attempt: int,
        on_lost: OnLost,
        after: asyncio.Future[None] | None = None,
    ) -> LiveChannel:
        """A channel for one attempt of a model step, which sends nothing before `after` is done.

        `on_lost(channel)` is awaited when the log is missing or of another epoch. It stores the folding and makes sure
        that the thread's epoch in SQL is higher than `channel.epoch`, in one transaction under the step's fence; it
        raises Fenced when the step is not this attempt's any more.
        """
        return LiveChannel(
            version, epoch=epoch, number=number, attempt=attempt, on_lost=on_lost, wake=self._wake, after=after
        )

    def _wake(self, channel: LiveChannel) -> None:
        self._dirty[channel] = None
        self._awake.set()

    async def _send_forever(self) -> None:
        backoff = Backoff(_logger, "The event log is unreachable, and what was written waits")
        clock = asyncio.get_running_loop().time
        while True:
            if not self._dirty:
                self._awake.clear()
                await self._awake.wait()
            if self._busy and (rest := self._last_sent + self._gather_seconds - clock()) > 0:
                await asyncio.sleep(rest)
            sending = [(channel, batch) for channel in self._dirty if (batch := channel.take()) is not None]
            self._dirty.clear()
            if not sending:
                continue
            self._last_sent = clock()
            self._count(sum(len(batch.entries) for _, batch in sending), now=self._last_sent)
            error = await self._send(sending)
            if error is None:
                backoff.succeeded()
            else:
                await asyncio.sleep(backoff.failed(error))

    async def _send(self, sending: Sequence[tuple[LiveChannel, LiveBatch]]) -> LogUnavailable | None:
        """Why something could not be sent."""
        outcomes: Sequence[PublishResult | LogError]
        try:
            outcomes = await self._log.publish_each([batch for _, batch in sending])
        except LogUnavailable as error:
            outcomes = [error] * len(sending)
        failed: LogUnavailable | None = None
        for (channel, _), outcome in zip(sending, outcomes, strict=True):
            if isinstance(outcome, LogUnavailable):
                failed = outcome
                channel.unanswered()
            elif channel.settle(outcome):
                task = asyncio.create_task(channel.recover(), name=f"pai-recover-{channel.version}")
                self._recoveries.add(task)
                task.add_done_callback(self._recoveries.discard)
                continue
            if channel.pending:
                self._dirty[channel] = None
        return failed

    def _count(self, entries: int, *, now: float) -> None:
        elapsed = now - self._window_start
        if elapsed >= _WINDOW_SECONDS:
            # A window that ended long ago says nothing about the load now.
            self._busy = self._window_entries > self._busy_entries * elapsed / _WINDOW_SECONDS
            self._window_start, self._window_entries = now, 0
        self._window_entries += entries
