"""A bounded mailbox: how the hub hands items to one watcher without a task, a lock or a wait per item."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

MAX_COUNT = 4_096
MAX_BYTES = 4 << 20

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """One reader. Beyond the bounds everything that waits is replaced by what `on_overflow()` gives.

    An item that is alone is always taken, however large.
    """

    def __init__(
        self, on_overflow: Callable[[], Item], *, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES
    ) -> None:
        self._on_overflow = on_overflow
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._items: list[Item] = []
        self._count = 0
        self._bytes = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Nothing waits and nothing will come."""
        return self._closed and not self._items

    def put(self, item: Item, *, count: int = 1, size: int = 0) -> None:
        """Adds an item that stands for `count` events of `size` bytes. Ignored after `close`."""
        if self._closed:
            return
        if self._items and (self._count + count > self._max_count or self._bytes + size > self._max_bytes):
            self._items = [self._on_overflow()]
            self._count = self._bytes = 0
        else:
            self._items.append(item)
            self._count += count
            self._bytes += size
        self._wake()

    def put_first(self, items: list[Item]) -> None:
        """Adds items before those that wait, without counting them."""
        if items:
            self._items[:0] = items
            self._wake()

    def close(self) -> None:
        """What waits can still be taken."""
        self._closed = True
        self._wake()

    def take(self) -> list[Item]:
        """All that waits, without waiting."""
        items, self._items = self._items, []
        self._count = self._bytes = 0
        return items

    async def wait(self, *, timeout: timedelta | None = None) -> None:
        """Returns when something waits, when the mailbox is closed, or after the timeout."""
        if self._items or self._closed:
            return
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout.total_seconds(), self._wake)
        try:
            await self._reader
        finally:
            self._reader = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
