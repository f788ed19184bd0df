"""One incarnation of a thread as one reader is told of it."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from pai.engine import api
from pai.engine.runtime import Caller
from pai.log.entries import ResetReason
from pai.log.frames import Batch, Deleted, Envelope, Frame, Reset
from pai.log.subscription import Subscription
from pai.protocol.errors import Unavailable
from pai.protocol.sse import KEEP_ALIVE, frame
from pai.protocol.state import ThreadStatus, TransportState
from pai_api.event_stream import Emit
from pai_api.snapshots import encode_state
from pai_api.state import ApiState

_PAUSES = (0.005, 0.02, 0.1, 0.5)
_LONGEST_PAUSE = 1.0


class Incarnation:
    """Remembers the last position that the reader was given, because no snapshot may be older than that."""

    def __init__(self, state: ApiState, caller: Caller, thread_id: str, version: str, *, snapshots: bool) -> None:
        self._state = state
        self._caller = caller
        self._thread_id = thread_id
        self._version = version
        self._snapshots = snapshots
        self._envelope = Envelope(version, thread_id)
        self._sequence = 0
        self._revision = 0

    def subscribed(self, *, after: int | None) -> AbstractAsyncContextManager[Subscription]:
        """Raises LogUnavailable when the log does not answer."""
        return self._state.hub.watch(self._version, thread_id=self._thread_id, after=after)

    def reset(self, sequence: int, reason: ResetReason) -> bytes:
        return self._noted(self._envelope.reset(sequence, reason))

    async def follow(self, emit: Emit, subscription: Subscription, *, begin_with_snapshot: bool) -> bool:
        """Passes on all that comes. -> True when the incarnation was deleted, False when this process is closing."""
        self._sequence, self._revision = subscription.ready
        if begin_with_snapshot and not await self._send_snapshot(emit, subscription):
            return True
        while not subscription.ended:
            frames = await subscription.next(timeout=self._state.settings.keepalive)
            if frames:
                if not await self._pass_on(emit, subscription, frames):
                    return True
            elif not subscription.ended:
                await emit(KEEP_ALIVE)
        return False

    async def _pass_on(self, emit: Emit, subscription: Subscription, frames: Sequence[Frame]) -> bool:
        """-> False when the incarnation is gone.

        A snapshot is newer than all that came with the reset it stands for.
        """
        resets = [index for index, one in enumerate(frames) if isinstance(one, Reset)] if self._snapshots else []
        if isinstance(frames[-1], Deleted):
            await emit(b"".join([self._noted(one) for one in (frames[-1:] if resets else frames)]))
            return False
        if not resets:
            await emit(b"".join([self._noted(one) for one in frames]))
            return True
        sent = b"".join([self._noted(one) for one in frames[: resets[0]]])
        if sent:
            await emit(sent)
        for one in frames[resets[0] :]:
            self._noted(one)
        return await self._send_snapshot(emit, subscription)

    async def _send_snapshot(self, emit: Emit, subscription: Subscription) -> bool:
        """-> False when the incarnation is gone, of which the reader is told."""
        state = await self._take_snapshot(emit)
        if state is None:
            await emit(self._noted(self._envelope.deleted(self._sequence + 1)))
            return False
        subscription.skip_to(state.sequence, revision=state.revision)
        self._sequence, self._revision = max(self._sequence, state.sequence), state.revision
        self._state.metrics.snapshots.inc()
        identifier = f"{self._version}:{state.sequence}".encode()
        await emit(frame(b'{"type":"snapshot","state":%b}' % encode_state(state), identifier))
        return True

    async def _take_snapshot(self, emit: Emit) -> TransportState | None:
        """A state that is not older than what was sent; None when the incarnation is gone."""
        clock = asyncio.get_running_loop().time
        began = quiet_since = clock()
        pauses = iter(_PAUSES)
        while True:
            try:
                state = await api.get_state(self._state.runtime, self._caller, self._thread_id)
                if state is None or state.thread.version != self._version:
                    return None
                if self._is_new_enough(state, waited=clock() - began):
                    return state
            except Unavailable:
                pass
            if clock() - quiet_since >= self._state.settings.keepalive.total_seconds():
                await emit(KEEP_ALIVE)
                quiet_since = clock()
            await asyncio.sleep(next(pauses, _LONGEST_PAUSE))

    def _is_new_enough(self, state: TransportState, *, waited: float) -> bool:
        if state.revision < self._revision:
            return False
        if state.sequence >= self._sequence or state.thread.status is not ThreadStatus.running:
            return True
        # The log is lost, and something runs. If it is an answer that is being written, its writer will notice and open
        # the log again; until then nobody else knows what was streamed. After the time that a dead writer's successor
        # takes there is none.
        settings = self._state.settings
        patience = settings.lease + settings.sweep_interval
        return self._state.hub.connected and waited > patience.total_seconds()

    def _noted(self, one: Frame) -> bytes:
        metrics = self._state.metrics
        if isinstance(one, Batch):
            metrics.events.inc(len(one.events))
            events = one.events
        else:
            metrics.events.inc()
            events = [one.event]
            if isinstance(one, Reset):
                metrics.resets.labels(one.reason).inc()
        self._sequence = max(self._sequence, events[-1].sequence)
        self._revision = max(self._revision, *(event.revision or 0 for event in events))
        return one.sse()
