"""The event log of threads in Redis: publish, fence, read, trim, delete.

Redis is disposable. Whatever happens to it, the log either holds contiguous entries of the epoch a writer knows, or
says `lost`; then the epoch is raised in SQL, and the log goes on under it, beginning with a reset. So no sequence ever
names two events.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from redis.asyncio import Redis

from pai.log import scripts
from pai.log.batches import (
    Batch,
    FenceResult,
    LogRead,
    LogState,
    PublishResult,
    PublishStatus,
    TransactionBatch,
)
from pai.log.entries import decode_log
from pai.log.errors import LogError, LogUnavailable, log_error, mapped_errors
from pai.log.keys import heads_channel

KEY_LIFE = timedelta(hours=1)
ORDER_STEP = timedelta(milliseconds=5)
ORDER_PATIENCE = timedelta(milliseconds=50)
ANSWER_PATIENCE = timedelta(seconds=2)


@asynccontextmanager
async def soon() -> AsyncIterator[None]:
    """Around what a request waits for: a server that does not answer within 2 s counts as away.

    Raises LogUnavailable.
    """
    try:
        async with asyncio.timeout(ANSWER_PATIENCE.total_seconds()):
            yield
    except TimeoutError:
        raise LogUnavailable("The event log does not answer.") from None


class EventLog:
    """Everything raises LogUnavailable when the server cannot be reached; nothing is repeated silently.

    `redis` comes from `pai.log.connection.connect`: bytes, and no retries of its own.
    """

    def __init__(self, redis: "Redis", *, key_life: timedelta = KEY_LIFE) -> None:
        self.redis = redis
        self._ttl = int(key_life.total_seconds())
        self._database = int(redis.connection_pool.connection_kwargs.get("db") or 0)

    def heads_channel(self, owner: str, agent: str) -> bytes:
        """Where changes of this owner's and agent's thread list are announced."""
        return heads_channel(owner, agent, database=self._database)

    async def publish(self, batches: Sequence[Batch]) -> list[PublishResult]:
        """One result per batch, in one round trip. An opening batch must never be sent a second time as such.

        Raises LogError when any of them failed.
        """
        outcomes = await self.publish_each(batches)
        results = []
        for outcome in outcomes:
            if isinstance(outcome, LogError):
                raise outcome
            results.append(outcome)
        return results

    async def publish_each(
        self, batches: Sequence[Batch], *, heads: Sequence[tuple[str, str, bytes]] = ()
    ) -> list[PublishResult | LogError]:
        """As `publish`, but a batch that failed alone is answered with its error. Raises LogUnavailable.

        `heads`: (owner, agent, payload) for those who watch their threads' heads, in the same round trip.
        """
        calls = [scripts.publish(batch, ttl=self._ttl) for batch in batches]
        messages = [(self.heads_channel(owner, agent), payload) for owner, agent, payload in heads]
        replies = await scripts.run(self.redis, calls, messages)
        return [
            log_error(reply)
            if isinstance(reply, Exception)
            else PublishResult(PublishStatus(reply[0].decode()), int(reply[1]), int(reply[2]))
            for reply in replies
        ]

    async def publish_transaction(self, batch: TransactionBatch) -> PublishResult:
        """Publishes in the order of revisions: waits up to 50 ms for the transaction before it, then forces a reset.

        The status is never `early`.
        """
        clock = asyncio.get_running_loop().time
        patience = clock() + ORDER_PATIENCE.total_seconds()
        while True:
            [result] = await self.publish([batch])
            if result.status is not PublishStatus.EARLY:
                return result
            if clock() >= patience:
                batch = replace(batch, forced=True)
            else:
                await asyncio.sleep(ORDER_STEP.total_seconds())

    async def fence(self, version: str, *, epoch: int, fences: Mapping[int, int]) -> FenceResult:
        """`fences`: {step number: attempt}. Publishes of lower attempts are refused from now on."""
        status, last, revision = await self._one(scripts.fence(version, epoch=epoch, fences=fences))
        return FenceResult(PublishStatus(status.decode()), int(last), int(revision))

    async def read_after(self, version: str, *, sequence: int, limit: int | None = None) -> LogRead:
        """The entries after a sequence, the first `limit` of them, and the head. `limit=0` reads the head alone."""
        return await self._read(scripts.read(version, lowest=sequence + 1, limit=limit, positions={}))

    async def read_messages_after(self, version: str, *, positions: Mapping[str, int]) -> LogRead:
        """`positions`: {message id: sequence}. The chunks of these messages beyond their sequences, and the head.

        Whether nothing in between was trimmed or lost: `oldest` is at most a sequence plus 1, in the same epoch.
        """
        if not positions:
            return await self.read_after(version, sequence=0, limit=0)
        lowest = min(positions.values()) + 1
        return await self._read(scripts.read(version, lowest=lowest, limit=None, positions=positions))

    async def trim(self, version: str, *, below: int, keep: int = 1000) -> None:
        """Removes the entries with a sequence lower than `below`, but never one of the last `keep`."""
        await self._one(scripts.trim(version, below=below, keep=keep))

    async def delete(self, version: str) -> None:
        """Removes the log, refuses every later publish, and tells watchers."""
        await self._one(scripts.delete(version, ttl=self._ttl))

    async def publish_head(self, owner: str, agent: str, payload: bytes) -> None:
        """Tells whoever watches the thread list of this owner and agent; nothing is kept."""
        with mapped_errors():
            await self.redis.publish(self.heads_channel(owner, agent), payload)

    async def _read(self, call: scripts.Call) -> LogRead:
        state, epoch, n, revision, oldest, lines = await self._one(call)
        return LogRead(
            LogState(state.decode()), int(epoch), int(n), int(revision), int(oldest), decode_log(bytes(lines))
        )

    async def _one(self, call: scripts.Call) -> list[bytes]:
        [reply] = await scripts.run(self.redis, [call])
        if isinstance(reply, Exception):
            raise log_error(reply)
        return reply  # type: ignore[no-any-return]
