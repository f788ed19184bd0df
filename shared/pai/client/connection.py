"""The one connection of a handle, shared by all who watch it: follow, resume, repair, and start over with patience.

It lives while somebody watches. A stream that breaks is resumed behind the last event; what cannot be resumed is
repaired from a snapshot. Without a stream it polls.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from itertools import count

from pydantic import ValidationError

from pai.client.backoff import Backoff, BackoffSettings
from pai.client.changes import Changes
from pai.client.messages import PaiCanonicalMessage
from pai.client.reducer import Adoption, Reducer, Verdict
from pai.client.transport import AgentClientTransport, Position, ThreadWatchInput, WatchesThreads
from pai.protocol.errors import PaiError, RateLimited, TransportError
from pai.protocol.events import ChunkEvent, ReadyEvent, ThreadEvent, WatchEvent
from pai.protocol.state import TransportState

POLL_INTERVAL = timedelta(seconds=1)
RECENT = 5.0
"""Seconds for which a state that nobody watched is good enough to resume from."""

_REPAIR = BackoffSettings(first=timedelta(milliseconds=50), most=timedelta(seconds=1))
_FORCE_AFTER = 15
_GIVE_UP_AFTER = 30

logger = logging.getLogger(__name__)


class ConnectionState(StrEnum):
    """idle: nobody watches. reconnecting: it broke, and is tried again. polling: the transport has no stream."""

    idle = "idle"
    connecting = "connecting"
    connected = "connected"
    reconnecting = "reconnecting"
    polling = "polling"


class Watcher:
    """Somebody who watches. `interval` only matters where the transport is polled."""

    def __init__(self, interval: timedelta | None, established: Callable[[], None] | None) -> None:
        self.interval = interval
        self.established = established


class ThreadConnection:
    """`observe` sees every chunk event that was applied, once; `compare` sees the messages of every poll."""

    def __init__(
        self,
        transport: AgentClientTransport,
        reducer: Reducer,
        *,
        changes: Changes,
        observe: Callable[[ChunkEvent], None],
        compare: Callable[[Sequence[PaiCanonicalMessage]], None],
        reconnect: BackoffSettings,
    ) -> None:
        self.state = ConnectionState.idle
        self.error: PaiError | None = None
        self.failure: BaseException | None = None
        self._transport = transport
        self._reducer = reducer
        self._changes = changes
        self._observe = observe
        self._compare = compare
        self._reconnect = reconnect
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready_revision: int | None = None
        self._repairs = Backoff(_REPAIR)
        self._heard = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether the state is what the server said since the connection was made."""
        return (
            self._ready_revision is not None and self._reducer.loaded and self._reducer.revision >= self._ready_revision
        )

    def attach(self, watcher: Watcher) -> None:
        """The first one opens the connection."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self.failure = None
            self.state = ConnectionState.connecting
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._run(), name=f"watch {self._reducer.thread_id}")
        elif self.state in (ConnectionState.connected, ConnectionState.polling):
            self._call(watcher)

    def forget(self, watcher: Watcher) -> None:
        """`detach` for a watcher that is garbage, which may be noticed in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.detach, watcher)

    def detach(self, watcher: Watcher) -> None:
        """The last one closes it. `leave` also waits until it is closed."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._ending = self._task
            self._task = None
            self._idle()

    async def leave(self, watcher: Watcher) -> None:
        """`detach`; what the transport held for the connection is given back when this returns."""
        self.detach(watcher)
        if self._task is None and self._ending is not None:
            await asyncio.wait([self._ending])

    async def fetch(self, *, needed: int = 0) -> None:
        """Bring the state up to a snapshot that is asked for now. Raises TransportError when only older ones come."""
        backoff = Backoff(_REPAIR)
        for tries in count():
            asked_with = self._reducer.version
            state = await self._transport.get_thread_state(self._reducer.thread_id)
            adoption = self._reducer.adopt(state, asked_with=asked_with, needed=needed, force=tries >= _FORCE_AFTER)
            if adoption is not Adoption.stale:
                self._heard = time.monotonic()
                self._changes.notify()
                return
            if tries >= _GIVE_UP_AFTER:
                raise TransportError("The server only answers with states that are older than what was seen before.")
            await asyncio.sleep(backoff.next())

    async def _run(self) -> None:
        try:
            if isinstance(self._transport, WatchesThreads):
                await self._watch(self._transport)
            else:
                await self._poll()
        except Exception as error:
            self.failure = error
            self._idle()
            self._changes.notify()

    def _idle(self) -> None:
        self.state = ConnectionState.idle
        self._ready_revision = None

    async def _watch(self, transport: WatchesThreads) -> None:
        backoff = Backoff(self._reconnect)
        while True:
            try:
                await self._follow(transport, backoff)
                wait = backoff.next()
            except PaiError as error:
                wait = self._patience(error, backoff)
            self._broken()
            await asyncio.sleep(wait)

    async def _follow(self, transport: WatchesThreads, backoff: Backoff) -> None:
        """One stream, until it ends."""
        recent = time.monotonic() - self._heard < RECENT or self.state is ConnectionState.reconnecting
        after = self._reducer.position if recent else None
        watch = ThreadWatchInput(
            thread_id=self._reducer.thread_id, after=after, on_connection_established=self._established
        )
        async with aclosing(transport.watch_thread(watch)) as events:
            async for event in events:
                try:
                    await self._take(event, after)
                except (KeyError, TypeError, ValidationError) as error:
                    raise TransportError(f"The server sent an event that cannot be read: {error}") from error
                self._heard = time.monotonic()
                if event["type"] != "ready":
                    backoff.reset()

    async def _take(self, event: WatchEvent, after: Position | None) -> None:
        if event["type"] == "ready":
            await self._ready(event, after)
        elif event["type"] == "snapshot":
            state = TransportState.read(event["state"])
            if self._reducer.adopt(state, asked_with=self._reducer.version) is Adoption.stale:
                await self.fetch(needed=state.sequence)
        else:
            await self._event(event)
        self._changes.notify()

    async def _ready(self, event: ReadyEvent, after: Position | None) -> None:
        position = None if event["version"] is None else Position(event["version"], event["sequence"])
        if position is None and self._reducer.version is None:
            self._reducer.loaded = True
        elif position is None or (after is not None and position != after):
            # The stream goes on from somewhere else, or the thread is gone.
            await self._repair(0)
        self._ready_revision = event["revision"] if event["version"] == self._reducer.version else 0

    async def _event(self, event: ThreadEvent) -> None:
        match self._reducer.apply(event):
            case Verdict.applied:
                self._repairs.reset()
                if event["type"] == "chunk":
                    self._observe(event)
            case Verdict.repair:
                await self._repair(event["sequence"] if event["version"] == self._reducer.version else 0)
            case Verdict.skipped | Verdict.deleted:
                pass

    async def _repair(self, needed: int) -> None:
        if self._repairs.failures:
            # A stream that no snapshot makes foldable must not become a storm of requests.
            await asyncio.sleep(self._repairs.next())
        else:
            self._repairs.failures = 1
        await self.fetch(needed=needed)

    async def _poll(self) -> None:
        backoff = Backoff(self._reconnect)
        while True:
            try:
                await self.fetch()
                self._compare(self._reducer.messages)
                backoff.reset()
                if self.state is not ConnectionState.polling:
                    self.state = ConnectionState.polling
                    self._ready_revision = 0
                    self._established()
                intervals = [watcher.interval for watcher in self._watchers if watcher.interval is not None]
                wait = min(intervals, default=POLL_INTERVAL).total_seconds()
            except PaiError as error:
                wait = self._patience(error, backoff)
                self._broken()
            await asyncio.sleep(wait)

    def _patience(self, error: PaiError, backoff: Backoff) -> float:
        """Seconds until the next try. Raises errors that trying again cannot help."""
        if error.status < 500 and not isinstance(error, RateLimited):
            raise error
        self.error = error
        return backoff.next(at_least=getattr(error, "retry_after", None) or 0.0)

    def _broken(self) -> None:
        self.state = ConnectionState.reconnecting
        self._ready_revision = None
        self._changes.notify()

    def _established(self) -> None:
        if self.state is not ConnectionState.polling:
            self.state = ConnectionState.connected
        self.error = None
        for watcher in list(self._watchers):
            self._call(watcher)

    @staticmethod
    def _call(watcher: Watcher) -> None:
        if watcher.established is None:
            return
        try:
            watcher.established()
        except Exception:
            logger.exception("on_connection_established failed")
