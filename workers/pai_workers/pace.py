"""The pace at which a worker process commits answers that are complete.

Nobody waits for such a commit; but many of them keep the database and the event loop from runs that have not said a
word yet, for which somebody does wait. So they go one after the other.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

PATIENCE = timedelta(milliseconds=20)
"""A commit that takes longer waits for a lock or for a database that is far away: it holds up no others."""


class Pace:
    """First come, first served."""

    def __init__(self, *, patience: timedelta = PATIENCE) -> None:
        self.patience = patience
        self._place = asyncio.Semaphore()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Waits for the place; it is given back at the end, or when it was held for too long."""
        await self._place.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._place.release()

        timer = asyncio.get_running_loop().call_later(self.patience.total_seconds(), give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
