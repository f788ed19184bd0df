"""The announcer: every committed transaction of a process is told to the world here, many in one round trip.

What commits while a round trip is under way gathers for the next one, so a burst costs few of them. Nothing is
repeated for long: a lost publication is noticed by its revision, a lost dispatch by the sweep, a lost signal at the
next renewal.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pai.broker import Dispatcher
from pai.engine.faults import Faults
from pai.engine.publication import Publication, head_event, reopen
from pai.log.batches import PublishStatus, TransactionBatch
from pai.log.errors import LogError
from pai.log.event_log import ORDER_PATIENCE, ORDER_STEP, EventLog
from pai.log.signals import Signals
from pai.protocol.errors import Unavailable
from pai.store.store import Store

MOST_AT_ONCE = 64
FAILING_SECONDS = 0.25
STREAM_SECONDS = 1.0
"""How long a transaction leaves a log that was lost to the step that streams, which alone knows what it streamed."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    publication: Publication
    batch: TransactionBatch
    done: asyncio.Future[None]
    since: float = field(default_factory=lambda: asyncio.get_running_loop().time())


class Announcer:
    """Publish, then dispatch (or both at once), then signal, each transaction once.

    `failures` counts publications that were given up.
    """

    def __init__(
        self,
        *,
        log: EventLog,
        store: Store,
        dispatcher: Dispatcher | None,
        signals: Signals | None,
        faults: Faults,
        timeout: timedelta,
    ) -> None:
        self.failures = 0
        self._log = log
        self._store = store
        self._dispatcher = dispatcher
        self._signals = signals
        self._faults = faults
        self._timeout = timeout.total_seconds()
        self._failing = False
        self._waiting: list[_Waiting] = []
        self._sender: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()

    def announce(self, publication: Publication) -> asyncio.Future[None]:
        """Takes a committed transaction. The future is done when it was published, or given up."""
        self._faults.hit("commit.before_publish")
        batch = TransactionBatch(
            version=publication.thread.version,
            epoch=publication.epoch,
            revision=publication.revision,
            entries=publication.entries,
            floor=publication.floor,
            finished=list(publication.finished),
            opening=publication.opening,
            reason=publication.reason,
            pushes=() if self._dispatcher is None else self._dispatcher.pushes(publication.dispatches),
        )
        waiting = _Waiting(publication, batch, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send_all(), name="pai-announcer")
        return waiting.done

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is being told now, or told again."""
        sender = () if self._sender is None else (self._sender,)
        return [*sender, *self._beside]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _send_all(self) -> None:
        while self._waiting:
            # While the server is away everything that waits is given up together, and soon.
            most = len(self._waiting) if self._failing else MOST_AT_ONCE
            sending, self._waiting = self._waiting[:most], self._waiting[most:]
            try:
                early = await self._send(sending)
            except Exception:
                logger.exception("%d publications failed.", len(sending))
                early = []
                self._finish(sending)
            if early and not self._waiting:
                await asyncio.sleep(ORDER_STEP.total_seconds())
            self._waiting[:0] = early

    async def _send(self, sending: Sequence[_Waiting]) -> list[_Waiting]:
        """-> those whose predecessor has not been published yet."""
        try:
            async with asyncio.timeout(min(self._timeout, FAILING_SECONDS) if self._failing else self._timeout):
                results = await self._log.publish_each([waiting.batch for waiting in sending], heads=_heads(sending))
            self._failing = False
        except (LogError, TimeoutError) as error:
            self._failing = True
            self._give_up(sending, error)
            self._finish(sending)
            return []
        early: list[_Waiting] = []
        published: list[_Waiting] = []
        lost: list[_Waiting] = []
        for waiting, result in zip(sending, results, strict=True):
            if isinstance(result, LogError):
                self._give_up([waiting], result)
            elif result.status is PublishStatus.EARLY:
                clock = asyncio.get_running_loop().time()
                waiting.batch.forced = clock - waiting.since >= ORDER_PATIENCE.total_seconds()
                early.append(waiting)
                continue
            elif result.status is PublishStatus.LOST:
                lost.append(waiting)
            published.append(waiting)
        for waiting in lost:
            self._spawn(self._reopen(waiting))
        self._finish(published)
        return early

    async def _reopen(self, waiting: _Waiting) -> None:
        batch = waiting.batch
        try:
            if waiting.publication.streaming:
                await asyncio.sleep(STREAM_SECONDS)
            async with asyncio.timeout(self._timeout):
                await reopen(self._log, self._store, version=batch.version, epoch=batch.epoch)
        except (LogError, Unavailable, TimeoutError) as error:
            self._give_up([waiting], error)

    def _give_up(self, sending: Sequence[_Waiting], error: Exception) -> None:
        self.failures += len(sending)
        for waiting in sending:
            batch = waiting.batch
            reason = str(error) or type(error).__name__
            logger.warning("Revision %d of %s was not published: %s", batch.revision, batch.version, reason)

    def _finish(self, sending: Sequence[_Waiting]) -> None:
        """What comes after publishing, whether or not that went well."""
        self._faults.hit("publish.before_dispatch")
        stops: list[tuple[str, int]] = []
        for waiting in sending:
            if self._dispatcher is not None and not waiting.batch.pushes:
                self._dispatcher.dispatch(waiting.publication.dispatches)
            stops += waiting.publication.signals
            if not waiting.done.done():
                waiting.done.set_result(None)
        if stops and self._signals is not None:
            self._spawn(self._signal(stops))

    async def _signal(self, stops: Sequence[tuple[str, int]]) -> None:
        if self._signals is not None:
            with contextlib.suppress(LogError):
                await self._signals.publish_stop(stops)


def _heads(sending: Sequence[_Waiting]) -> list[tuple[str, str, bytes]]:
    threads = [waiting.publication.thread for waiting in sending if waiting.publication.head]
    return [(thread.owner, thread.agent, head_event(thread)) for thread in threads]
