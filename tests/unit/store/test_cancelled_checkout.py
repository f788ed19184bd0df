"""A caller that is cancelled while it gets its connection leaves none behind."""

import asyncio
import contextlib
from datetime import timedelta

from sqlalchemy import text

from pai.store.store import Store


async def test_a_connection_that_arrives_after_its_caller_was_cancelled_goes_back(any_database_url: str) -> None:
    for turns in range(30):
        async with Store.open(any_database_url, pool_size=1, pool_timeout=timedelta(seconds=2)) as store:
            task = asyncio.ensure_future(_use(store))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            # Were the only connection lost, this would wait for it in vain.
            await _use(store)


async def _use(store: Store) -> None:
    async with store.autocommit() as connection:
        await connection.execute(text("SELECT 1"))
