"""The fan-out of one thread: every frame goes to all of its watchers.

Waking a watcher costs more than handing it an event. So after something went out, the next waits for a moment that
grows with the number of watchers, and goes out as one batch; with few watchers, or after a pause, nothing waits.
"""

import asyncio
from collections.abc import Iterator, Sequence

from pai.log.frames import Batch, Frame
from pai.log.subscription import Subscription

SECONDS_PER_WATCHER = 20e-6
LONGEST_SECONDS = 0.02


def joined(frames: Sequence[Frame]) -> Iterator[Frame]:
    """Neighbouring batches become one."""
    batches: list[Batch] = []
    for frame in frames:
        if isinstance(frame, Batch):
            batches.append(frame)
            continue
        if batches:
            yield Batch.join(batches)
            batches = []
        yield frame
    if batches:
        yield Batch.join(batches)


class FanOut:
    """`position` is the sequence of what went out last: what a watcher that overflows has to be told."""

    def __init__(self) -> None:
        self.position = 0
        self._subscriptions: dict[Subscription, None] = {}
        self._gathered: list[Frame] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def add(self, subscription: Subscription) -> None:
        """The watcher gets what is sent from now on."""
        self.flush()
        self._subscriptions[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)

    def send(self, frames: Sequence[Frame]) -> None:
        self._gathered += frames
        if self._timer is None:
            loop = asyncio.get_running_loop()
            pause = min(len(self._subscriptions) * SECONDS_PER_WATCHER, LONGEST_SECONDS)
            rest = self._last + pause - loop.time()
            if rest > 0:
                self._timer = loop.call_later(rest, self.flush)
            else:
                self.flush()

    def flush(self) -> None:
        """Nothing waits any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        frames, self._gathered = self._gathered, []
        for frame in joined(frames):
            self.position = frame.last
            for subscription in self._subscriptions:
                subscription.push(frame)
        self._last = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Ends all watches."""
        self.flush()
        for subscription in self._subscriptions:
            subscription.end()
