"""Tells those who watch that there is something new, joining what they have not looked at yet."""

import asyncio


class Changes:
    """`count` grows with every change; a watcher remembers the count that it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def after(self, seen: int) -> int:
        """The count, once it is above `seen`."""
        while self.count <= seen:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.count
