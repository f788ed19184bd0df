"""What the tests of the log share: a stand-in for the engine's side of a thread, and a proxy that loses replies."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pai.log.batches import LiveBatch, PublishResult, PublishStatus, TransactionBatch
from pai.log.ending import end
from pai.log.entries import Field, ResetReason, chunk, update
from pai.log.event_log import EventLog
from pai.log.frames import Batch, Deleted, Frame, Reset
from pai.log.hub import Hub
from pai.log.live_channel import LiveChannel, Reopening
from pai.log.publisher import Publisher
from pai.log.sequences import sequence_of
from pai.log.subscription import Subscription
from pai.protocol.ids import new_id

NEVER = timedelta(hours=1)
AT_ONCE = timedelta(0)
MESSAGE = "msg_1"
RUN = "run_1"


def text(delta: object) -> Field:
    return chunk(RUN, MESSAGE, json.dumps({"type": "text-delta", "delta": str(delta)}).encode())


def texts(*deltas: object) -> list[Field]:
    return [text(delta) for delta in deltas]


def live(version: str, *deltas: object, **settings: Any) -> LiveBatch:
    return LiveBatch(
        version=version, **{"epoch": 1, "number": 1, "attempt": 1, "batch": 1, "entries": texts(*deltas), **settings}
    )


def transaction(version: str, revision: int, **settings: Any) -> TransactionBatch:
    return TransactionBatch(
        version=version,
        revision=revision,
        **{"epoch": 1, "entries": [update(b'{"r":%d}' % revision)], "floor": 1, **settings},
    )


async def opened(log: EventLog, version: str | None = None) -> str:
    """A new thread's log: epoch 1, one update of revision 1."""
    version = version or new_id("ver")
    [result] = await log.publish([transaction(version, 1, opening=True)])
    assert result.status is PublishStatus.PUBLISHED
    return version


@dataclass
class Thread:
    """The row of a thread and what the engine does with it: commit, publish, raise the epoch when the log is lost."""

    log: EventLog
    version: str = field(default_factory=lambda: new_id("ver"))
    epoch: int = 1
    revision: int = 0
    floor: int = 1
    folded: list[str] = field(default_factory=list)
    """The deltas of the message that are in SQL, which are those up to `stored`."""
    stored: int = 0

    def commit(self, *extra: Field) -> TransactionBatch:
        self.revision += 1
        entries = [*extra, update(b'{"r":%d}' % self.revision)]
        return TransactionBatch(
            version=self.version, epoch=self.epoch, revision=self.revision, entries=entries, floor=self.floor
        )

    def raise_epoch(self, beyond: int) -> bool:
        """The conditional update: whoever really raises it is the opener."""
        if self.epoch > beyond:
            return False
        self.epoch = beyond + 1
        return True

    async def create(self) -> PublishResult:
        batch = self.commit()
        batch.opening = True
        [result] = await self.log.publish([batch])
        return result

    async def publish(self, batch: TransactionBatch) -> PublishResult:
        while True:
            result = await self.log.publish_transaction(batch)
            if result.status is not PublishStatus.LOST:
                return result
            batch.opening = self.raise_epoch(batch.epoch)
            batch.reason = ResetReason.LOST if batch.opening else None
            batch.epoch = self.epoch

    async def transact(self, *extra: Field) -> PublishResult:
        return await self.publish(self.commit(*extra))

    async def reopen(self, channel: LiveChannel, written: list[str]) -> Reopening:
        """What the engine does for a live step: it stores the folding and raises the epoch, in one transaction."""
        covered = channel.written
        self.folded = written[:covered]
        self.revision += 1
        opening = self.raise_epoch(channel.epoch)
        self.stored = sequence_of(self.epoch, 0)
        return Reopening(epoch=self.epoch, opening=opening, revision=self.revision, covered=covered)

    async def snapshot(self) -> tuple[int, int, list[str]]:
        """Sequence, revision and the deltas of the message: SQL first, then the log."""
        while True:
            stored, folded, revision = self.stored, list(self.folded), self.revision
            read = await self.log.read_messages_after(self.version, positions={MESSAGE: stored})
            if self.stored == stored and read.revision <= revision:
                return read.last, revision, folded + [json.loads(entry.body)["delta"] for entry in read.entries]

    async def revisions(self, versions: Iterable[str]) -> dict[str, int]:
        return {version: self.revision for version in versions if version == self.version}


@dataclass
class Step:
    """A model step that streams: it knows what it wrote, as the engine does."""

    thread: Thread
    publisher: Publisher
    number: int = 1
    attempt: int = 1
    written: list[str] = field(default_factory=list)
    after: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.channel = self.publisher.channel(
            self.thread.version,
            epoch=self.thread.epoch,
            number=self.number,
            attempt=self.attempt,
            on_lost=lambda channel: self.thread.reopen(channel, self.written),
            after=self.after,
        )

    def write(self, *some: object) -> None:
        for one in some:
            self.channel.write(*text(one))
            self.written.append(str(one))


def events(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    """The events of frames as JSON values."""
    found = []
    for frame in frames:
        data = [event.data for event in frame.events] if isinstance(frame, Batch) else [frame.event.data]
        found += [json.loads(one) for one in data]
    return found


def deltas(found: Iterable[dict[str, Any]]) -> list[str]:
    return [event["chunk"]["delta"] for event in found if event["type"] == "chunk"]


class Watcher:
    """A client: it applies what follows its position, takes a snapshot at a reset, and notes every gap."""

    def __init__(self, thread: Thread, *, sequence: int = 0) -> None:
        self._thread = thread
        self.position = sequence
        self.revision = 0
        self.deltas: list[str] = []
        self.resets: list[ResetReason] = []
        self.events: list[dict[str, Any]] = []
        self.gaps: list[tuple[int, int]] = []
        self.deleted = False

    async def follow(self, subscription: Subscription) -> None:
        self.position = self.position or subscription.ready.sequence
        async for frames in subscription:
            for frame in frames:
                await self._take(frame)

    async def _take(self, frame: Frame) -> None:
        if isinstance(frame, Reset):
            self.resets.append(frame.reason)
            self.position, self.revision, self.deltas = await self._thread.snapshot()
            return
        for event in events([frame]):
            if event["sequence"] <= self.position:
                continue
            if self.position and event["sequence"] != self.position + 1:
                self.gaps.append((self.position, event["sequence"]))
            self.position = event["sequence"]
            self.events.append(event)
            if event["type"] == "chunk":
                self.deltas.append(event["chunk"]["delta"])
            self.revision = event.get("revision", self.revision)
        self.deleted = self.deleted or isinstance(frame, Deleted)


@asynccontextmanager
async def following(hub: Hub, thread: Thread, *, after: int | None = None) -> AsyncIterator[Watcher]:
    """A watcher that follows the thread in a task of its own."""
    async with hub.watch(thread.version, thread_id="thread_1", after=after) as subscription:
        watcher = Watcher(thread)
        task = asyncio.create_task(watcher.follow(subscription))
        try:
            yield watcher
        finally:
            await end(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
