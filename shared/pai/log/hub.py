"""The hub of a process: one pub/sub connection for all its watchers.

Order of an attach: subscribe, register the watcher, read the log after its position, go live, dropping what is not
newer. Publications that a crash swallowed are found by comparing with SQL every few seconds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from pai.log.ending import end
from pai.log.errors import LogUnavailable
from pai.log.event_log import EventLog
from pai.log.heads import MISSED, HeadsSubscription
from pai.log.keys import live_channel
from pai.log.listener import PING_AFTER, Listener
from pai.log.mailbox import MAX_BYTES, MAX_COUNT
from pai.log.subscription import Subscription
from pai.log.topic import Topic

CHECK_EVERY = timedelta(seconds=5)
CHECK_GRACE = timedelta(seconds=1)
ATTACH_PATIENCE = timedelta(seconds=5)
_CONCURRENT_READS = 8

Revisions = Callable[[Sequence[str]], Awaitable[Mapping[str, int]]]
"""The revisions of threads in SQL by version; a version that does not exist (any more) is absent."""

Reopen = Callable[[str], Awaitable[bool]]
"""Begins the log of a thread anew if it was lost; True when its watchers hear of it from the log."""

_logger = logging.getLogger(__name__)


class _Heads:
    """The watchers of one heads channel."""

    def __init__(self) -> None:
        self.subscriptions: dict[HeadsSubscription, None] = {}
        self.subscribed = asyncio.Event()
        self.users = 0


class Hub:
    """An async context manager; leaving it ends all subscriptions."""

    def __init__(
        self,
        log: EventLog,
        *,
        revisions: Revisions,
        reopen: Reopen | None = None,
        check_every: timedelta = CHECK_EVERY,
        check_grace: timedelta = CHECK_GRACE,
        attach_patience: timedelta = ATTACH_PATIENCE,
        ping_after: timedelta = PING_AFTER,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._log = log
        self._revisions = revisions
        self._reopen = reopen
        self._check_seconds = check_every.total_seconds()
        self._grace_seconds = check_grace.total_seconds()
        self._patience_seconds = attach_patience.total_seconds()
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._reads = asyncio.Semaphore(_CONCURRENT_READS)
        self._topics: dict[bytes, Topic] = {}
        self._heads: dict[bytes, _Heads] = {}
        self._listener = Listener(
            log.redis, on_message=self._message, on_subscribed=self._subscribed, ping_after=ping_after
        )
        self._checker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        self._checker = asyncio.create_task(self._check_forever(), name="pai-hub-check")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._checker)
        await self._listener.__aexit__(kind, error, trace)
        for topic in list(self._topics.values()):
            await topic.close()
        for heads in self._heads.values():
            for subscription in heads.subscriptions:
                subscription.end()

    @property
    def connected(self) -> bool:
        """Whether live events arrive at present."""
        return self._listener.connected

    @property
    def watchers(self) -> int:
        """How many watches of threads and lists there are."""
        return sum(topic.users for topic in self._topics.values()) + sum(one.users for one in self._heads.values())

    @asynccontextmanager
    async def watch(self, version: str, *, thread_id: str, after: int | None = None) -> AsyncIterator[Subscription]:
        """Watches a thread after a sequence, or from now.

        A position that cannot be continued from begins with a reset, a deleted thread with Deleted.
        Raises LogUnavailable when the server does not answer within 5 s.
        """
        channel = live_channel(version)
        topic = self._topics.get(channel)
        if topic is None:
            topic = self._topics[channel] = self._new_topic(version, thread_id)
        topic.users += 1
        subscription = None
        try:
            if topic.users == 1:
                self._listener.subscribe(channel)
            await self._within_patience(topic.primed)
            subscription = await topic.attach(after=after, max_count=self._max_count, max_bytes=self._max_bytes)
            yield subscription
        finally:
            topic.users -= 1
            if subscription is not None:
                topic.detach(subscription)
            if not topic.users and self._topics.get(channel) is topic:
                del self._topics[channel]
                self._listener.unsubscribe(channel)
                await topic.close()

    @asynccontextmanager
    async def watch_heads(self, owner: str, agent: str) -> AsyncIterator[HeadsSubscription]:
        """Watches the thread list of an owner and agent from now on. Raises LogUnavailable as `watch` does."""
        channel = self._log.heads_channel(owner, agent)
        heads = self._heads.setdefault(channel, _Heads())
        heads.users += 1
        subscription = HeadsSubscription(max_count=self._max_count, max_bytes=self._max_bytes)
        try:
            if heads.users == 1:
                self._listener.subscribe(channel)
            await self._within_patience(heads.subscribed)
            heads.subscriptions[subscription] = None
            yield subscription
        finally:
            heads.users -= 1
            heads.subscriptions.pop(subscription, None)
            if not heads.users and self._heads.get(channel) is heads:
                del self._heads[channel]
                self._listener.unsubscribe(channel)

    async def check(self) -> None:
        """Compares all watched threads with SQL, in one call; runs every 5 s by itself."""
        topics = {
            topic.version: topic for topic in self._topics.values() if topic.primed.is_set() and not topic.deleted
        }
        if not topics:
            return
        found = await self._revisions(list(topics))
        behind = []
        for version, topic in topics.items():
            if version not in found:
                topic.delete()
            elif found[version] > topic.revision:
                behind.append((topic, found[version]))
        if not behind:
            return
        # The publication usually is on its way.
        await asyncio.sleep(self._grace_seconds)
        for topic, revision in behind:
            if topic.revision >= revision or topic.deleted:
                continue
            # A log that was lost while nobody wrote begins anew, or its next snapshot would be older than its watchers.
            if self._reopen is None or not await self._reopen(topic.version):
                topic.fall_behind(revision)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                async with asyncio.timeout(self._check_seconds + self._grace_seconds + self._patience_seconds):
                    await self.check()
            except Exception as error:
                _logger.warning("The watched threads could not be compared with the database: %r", error)

    def _new_topic(self, version: str, thread_id: str) -> Topic:
        async def current_revision() -> int | None:
            try:
                return (await self._revisions([version])).get(version)
            except Exception as error:
                _logger.warning("The revision of %s could not be read: %r", version, error)
                return 0  # the next comparison makes its watchers take a snapshot

        return Topic(version, thread_id=thread_id, log=self._log, reads=self._reads, current_revision=current_revision)

    async def _within_patience(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                await event.wait()
        except TimeoutError:
            raise LogUnavailable("The event log does not answer.") from None

    def _message(self, channel: bytes, data: bytes) -> None:
        if topic := self._topics.get(channel):
            topic.receive(data)
        elif heads := self._heads.get(channel):
            for subscription in heads.subscriptions:
                subscription.push(data)

    def _subscribed(self, channel: bytes, other_server: bool) -> None:
        if topic := self._topics.get(channel):
            topic.subscribed(other_server=other_server)
        elif heads := self._heads.get(channel):
            if heads.subscribed.is_set():
                for subscription in heads.subscriptions:
                    subscription.push(MISSED)
            heads.subscribed.set()
