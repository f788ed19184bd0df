"""What the rows of threads say, looked up once for all who wait: cheaper than a request for each of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import create_engine, text

from support.waiting import wait_until

_THREADS = text("SELECT thread_id, version, revision, status, queued, actions FROM thread")


@dataclass(frozen=True, slots=True)
class Seen:
    """`actions` are the references of what a thread waits for."""

    version: str
    revision: int
    status: str
    queued: int
    actions: list[dict[str, Any]]

    @property
    def at_rest(self) -> bool:
        return self.status == "idle" and not self.queued


class Board:
    """Of one owner and agent: all threads by id."""

    def __init__(self) -> None:
        self.threads: dict[str, Seen] = {}

    async def reaches(
        self, thread_id: str, reached: Callable[[Seen], bool], *, since: int = 1, saw: Callable[[], Any]
    ) -> Seen:
        """The thread once that is true of it, at that revision or a later one."""

        def there() -> Seen | None:
            seen = self.threads.get(thread_id)
            return seen if seen is not None and seen.revision >= since and reached(seen) else None

        found = await wait_until(there, saw=lambda: (thread_id, self.threads.get(thread_id), saw()))
        assert found is not None
        return found


@asynccontextmanager
async def board(database_url: str) -> AsyncIterator[Board]:
    """A board that is kept up meanwhile, a hundred times a second at most."""
    engine, made = create_engine(database_url, isolation_level="AUTOCOMMIT"), Board()

    async def keep_up() -> None:
        with engine.connect() as connection:
            while True:
                for thread_id, *row, actions in connection.execute(_THREADS):
                    decoded = json.loads(actions) if isinstance(actions, str) else actions
                    made.threads[thread_id] = Seen(*row, decoded)
                await asyncio.sleep(0.01)

    keeping = asyncio.create_task(keep_up())
    try:
        yield made
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        engine.dispose()
