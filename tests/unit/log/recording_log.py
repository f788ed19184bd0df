"""The real log, watched: what is sent is noted, can be held back, and its replies can be lost."""

import asyncio
from collections.abc import Sequence

from log_parts import Thread, texts
from redis.asyncio import Redis

from pai.log.batches import Batch, LiveBatch, PublishResult
from pai.log.entries import EntryKind
from pai.log.errors import LogError, LogUnavailable
from pai.log.event_log import EventLog


class RecordingLog(EventLog):
    """The real log, which notes what is sent, can hold it back, and can lose replies after the execution."""

    def __init__(self, redis: "Redis") -> None:
        super().__init__(redis)
        self.sent: list[list[LiveBatch]] = []
        self.lose_replies = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def publish_each(
        self, batches: Sequence[Batch], *, heads: Sequence[tuple[str, str, bytes]] = ()
    ) -> list[PublishResult | LogError]:
        self.sent.append([batch for batch in batches if isinstance(batch, LiveBatch)])
        await self.gate.wait()
        outcomes = await super().publish_each(batches, heads=heads)
        if self.lose_replies:
            self.lose_replies -= 1
            raise LogUnavailable("the reply was lost")
        return outcomes


async def logged(thread: Thread) -> list[bytes]:
    read = await thread.log.read_after(thread.version, sequence=0)
    return [entry.body for entry in read.entries if entry.kind is EntryKind.CHUNK]


def bodies(*some: object) -> list[bytes]:
    return [body for _, body in texts(*some)]
