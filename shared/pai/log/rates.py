"""How fast an identity may ask: one bucket of tokens for all API processes, in Redis.

Redis is disposable here as well. While it is away each process counts for itself: then more is let through, and nobody
is refused for the sake of a limit that cannot be known.
"""

import asyncio
import logging
from collections import OrderedDict
from time import monotonic

from redis.asyncio import Redis

from pai.log import scripts
from pai.log.errors import LogError, log_error
from pai.protocol.errors import RateLimited

PATIENCE_SECONDS = 1.0
"""A request must not wait for a server that does not answer, only to be counted."""
AWAY_SECONDS = 1.0
_MOST = 10_000

logger = logging.getLogger(__name__)


class Rates:
    """`per_second` None: no limit, and nothing is counted. `burst`: requests at once; None: those of two seconds."""

    def __init__(self, redis: "Redis", *, per_second: int | None, burst: int | None = None) -> None:
        self._redis = redis
        self._per_second = per_second
        self._burst = burst or 2 * (per_second or 1)
        self._local = LocalBuckets(per_second or 1, self._burst)
        self._away_until = float("-inf")

    async def take(self, owner: str) -> None:
        """Counts one request. Raises RateLimited, which says when the next one would pass."""
        if self._per_second is None:
            return
        wait = await self._wait(owner, self._per_second)
        if wait > 0:
            raise RateLimited(
                f"The limit is {self._per_second} requests per second.", limit=self._per_second, retry_after=wait
            )

    async def _wait(self, owner: str, per_second: int) -> float:
        if monotonic() >= self._away_until:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    [reply] = await scripts.run(
                        self._redis, [scripts.take(owner, per_second=per_second, burst=self._burst)]
                    )
                if isinstance(reply, Exception):
                    raise log_error(reply)
                return int(reply) / 1000
            except (LogError, TimeoutError) as error:
                if monotonic() >= self._away_until:  # many wait for the same answer
                    reason = str(error) or "Redis does not answer"
                    logger.warning("Requests are counted by each process alone: %s", reason)
                self._away_until = monotonic() + AWAY_SECONDS
        return self._local.take(owner, now=monotonic())


class LocalBuckets:
    """The buckets of one process; those that were not used for longest are forgotten."""

    def __init__(self, per_second: int, size: int) -> None:
        self._per_second = per_second
        self._size = size
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, owner: str, *, now: float) -> float:
        """Seconds to wait; 0: taken."""
        tokens, at = self._held.get(owner, (float(self._size), now))
        tokens = min(float(self._size), tokens + (now - at) * self._per_second)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
        self._held[owner] = (tokens - 1 if wait == 0 else tokens, now)
        self._held.move_to_end(owner)
        if len(self._held) > _MOST:
            self._held.popitem(last=False)
        return wait
