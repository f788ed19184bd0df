"""Watching the list of threads: deltas only, nothing is kept, so a watcher is told when it may have missed some."""

from datetime import timedelta
from typing import Final

from pai.log.mailbox import Mailbox


class Missed:
    """Some changes may have been missed: read the list again."""

    def __repr__(self) -> str:
        return "MISSED"


MISSED: Final = Missed()


class HeadsSubscription:
    """An async iterator over lists of payloads, or MISSED among them. It ends when the hub closes."""

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._mailbox: Mailbox[bytes | Missed] = Mailbox(lambda: MISSED, max_count=max_count, max_bytes=max_bytes)

    def __aiter__(self) -> "HeadsSubscription":
        return self

    async def __anext__(self) -> list[bytes | Missed]:
        while not self._mailbox.closed:
            if items := await self.next():
                return items
        raise StopAsyncIteration

    @property
    def ended(self) -> bool:
        """Nothing will come any more."""
        return self._mailbox.closed

    async def next(self, *, timeout: timedelta | None = None) -> list[bytes | Missed]:
        """What waits, at least one; none after the timeout or when the subscription has ended."""
        await self._mailbox.wait(timeout=timeout)
        return self._mailbox.take()

    def push(self, item: bytes | Missed) -> None:
        """For the hub."""
        self._mailbox.put(item, size=len(item) if isinstance(item, bytes) else 0)

    def end(self) -> None:
        """For the hub."""
        self._mailbox.close()
