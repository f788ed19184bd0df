"""Renewal of leases from a thread of its own, so that a busy event loop does not lose its steps.

One statement renews everything that the process holds. What it does not return is not this process's any more, or past
its deadline: a wedged loop cannot hold a step for ever.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from pai.engine.claim import RENEW
from pai.store.database import sync_engine
from pai_workers.metrics import Metrics

BLOCKED_AFTER = timedelta(seconds=1)

logger = logging.getLogger(__name__)


class Leases:
    """`held` maps step ids to attempts and is read in the thread; `lost` is called in the loop with what was lost.

    `healthy`: whether this process's own SQL has worked for a whole lease. Only then may it expire others' leases: a
    database that was away must not kill every tool.
    """

    def __init__(
        self,
        url: str,
        *,
        worker: str,
        lease: timedelta,
        interval: timedelta,
        held: Callable[[], Mapping[str, int]],
        lost: Callable[[str, int], None],
        working_on: Callable[[], str],
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
    ) -> None:
        self._engine = sync_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)
        self._worker = worker
        self._lease = lease
        self._interval = interval
        self._held = held
        self._lost = lost
        self._working_on = working_on
        self._loop = loop
        self._metrics = metrics
        self._stop = threading.Event()
        self._healthy_since: float | None = None
        self._pulse = time.monotonic()
        self._thread = threading.Thread(target=self._renew_forever, name="pai-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._engine.dispose()

    @property
    def healthy(self) -> bool:
        since = self._healthy_since
        return since is not None and time.monotonic() - since >= self._lease.total_seconds()

    def _renew_forever(self) -> None:
        while not self._stop.is_set():
            self._watch_loop()
            try:
                self._renew()
            except Exception as error:
                self._healthy_since = None
                self._metrics.renewal_failures.inc()
                logger.warning("Leases were not renewed: %s", error)
            else:
                self._healthy_since = self._healthy_since or time.monotonic()
            self._stop.wait(self._interval.total_seconds())

    def _renew(self) -> None:
        before = dict(self._held())
        lease_ms = round(self._lease.total_seconds() * 1000)
        parameters = {"worker": self._worker, "lease_ms": lease_ms, "held": list(before)}
        with self._engine.begin() as connection:
            owned = {row.step_id: row.attempt for row in connection.execute(RENEW, parameters)}
        for step_id, attempt in before.items():
            if owned.get(step_id) != attempt:
                self._loop.call_soon_threadsafe(self._lost, step_id, attempt)

    def _watch_loop(self) -> None:
        """Logs when the event loop has not answered since the last round: something blocks it."""
        behind = time.monotonic() - self._pulse
        if behind > self._interval.total_seconds() + BLOCKED_AFTER.total_seconds():
            logger.error("The event loop is blocked for %.1f s; running: %s", behind, self._working_on())
        self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        self._pulse = time.monotonic()
