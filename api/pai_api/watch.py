"""One watch of a thread: what its reader is told, from the first byte to the last.

The reader follows a thread id, so a watch outlives incarnations: it begins before the thread exists, and goes on when
the thread is deleted and made again. With `snapshots` the reader never needs another request: whatever it may have
missed comes as the whole state.
"""

import asyncio
from dataclasses import dataclass

from pai.engine import api
from pai.engine.runtime import Caller
from pai.log.entries import ResetReason
from pai.log.frames import Envelope
from pai.log.sequences import sequence_of
from pai.log.subscription import Position
from pai.protocol.errors import Unavailable
from pai.protocol.ids import is_id
from pai.protocol.json import dumps
from pai.protocol.sse import KEEP_ALIVE, frame
from pai_api.event_stream import Emit
from pai_api.incarnation import Incarnation
from pai_api.state import ApiState

CREATED = sequence_of(1, 0)
"""The position before the first event of an incarnation."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where a reader stopped. One that cannot be read is of no version: it is as gone as any other."""

    version: str
    sequence: int

    @classmethod
    def read(cls, text: str) -> "Bookmark":
        version, _, number = text.rpartition(":")
        if is_id(version) and number.isascii() and number.isdigit() and len(number) <= 16 and int(number) < 2**53:
            return cls(version, int(number))
        return cls("", 0)


class ThreadWatch:
    def __init__(
        self, state: ApiState, caller: Caller, thread_id: str, *, bookmark: Bookmark | None, snapshots: bool
    ) -> None:
        self._state = state
        self._caller = caller
        self._thread_id = thread_id
        self._bookmark = bookmark
        self._snapshots = snapshots
        self._gone: set[str] = set()

    async def run(self, emit: Emit, *, found: api.ThreadPosition | None) -> None:
        """`found`: the incarnation as of now. Raises LogUnavailable when the log does not answer before `ready`."""
        if found is None:
            await emit(self._ready(None, Position(0, 0)))
            await self._forget_bookmark(emit)
            followed = True
        else:
            followed = await self._resume(emit, found.version)
        while followed:
            version = await self._next_incarnation(emit)
            if version is None:
                return
            incarnation = Incarnation(self._state, self._caller, self._thread_id, version, snapshots=self._snapshots)
            async with incarnation.subscribed(after=None if self._snapshots else CREATED) as subscription:
                followed = await incarnation.follow(emit, subscription, begin_with_snapshot=self._snapshots)
            self._gone.add(version)

    async def _forget_bookmark(self, emit: Emit) -> None:
        if self._bookmark is not None and self._bookmark.version:
            deleted = Envelope(self._bookmark.version, self._thread_id).deleted(self._bookmark.sequence + 1)
            await emit(deleted.sse())

    async def _resume(self, emit: Emit, version: str) -> bool:
        """From the bookmark, or from now when there is none or it is of another incarnation."""
        bookmark = self._bookmark
        continued = bookmark is not None and bookmark.version == version
        after = bookmark.sequence if bookmark is not None and continued else None
        incarnation = Incarnation(self._state, self._caller, self._thread_id, version, snapshots=self._snapshots)
        async with incarnation.subscribed(after=after) as subscription:
            await emit(self._ready(version, subscription.ready))
            if bookmark is not None and not continued and not self._snapshots:
                await emit(incarnation.reset(subscription.ready.sequence, ResetReason.VERSION))
            followed = await incarnation.follow(
                emit, subscription, begin_with_snapshot=self._snapshots and not continued
            )
        self._gone.add(version)
        return followed

    async def _next_incarnation(self, emit: Emit) -> str | None:
        """Waits for the thread to be created; None when this process is closing.

        The list of threads tells at once. A look at the database now and then finds what was never published.
        """
        settings, clock = self._state.settings, asyncio.get_running_loop().time
        look_again = min(settings.check_interval, settings.keepalive)
        name = b'"threadId":%b' % dumps(self._thread_id)
        async with self._state.hub.watch_heads(self._caller.owner, self._caller.agent.name) as heads:
            while not heads.ended:
                version = await self._current_version()
                if version is not None:
                    return version
                deadline = clock() + look_again.total_seconds()
                while (items := await heads.next(timeout=look_again)) and clock() < deadline:
                    if any(not isinstance(item, bytes) or name in item for item in items):
                        break
                else:
                    await emit(KEEP_ALIVE)
        return None

    async def _current_version(self) -> str | None:
        try:
            found = await api.locate(self._state.runtime, self._caller, self._thread_id)
        except Unavailable:
            return None
        return None if found is None or found.version in self._gone else found.version

    def _ready(self, version: str | None, position: Position) -> bytes:
        event = {
            "type": "ready",
            "threadId": self._thread_id,
            "version": version,
            "sequence": position.sequence,
            "revision": position.revision,
        }
        return frame(dumps(event))
