"""After a mutation: the state here holds what it did, by the watch where there is one, else by a snapshot."""

import asyncio
import logging

from pai.client.backoff import Backoff, BackoffSettings
from pai.client.changes import Changes
from pai.client.connection import ConnectionState, ThreadConnection
from pai.client.reducer import Reducer
from pai.protocol.errors import PaiError

PATIENCE = 1.0
"""Seconds that a watch gets to bring a revision before a snapshot is asked for."""

_AGAIN = BackoffSettings()
_TRIES = 6

logger = logging.getLogger(__name__)


class Settling:
    def __init__(self, reducer: Reducer, connection: ThreadConnection, changes: Changes) -> None:
        self._reducer = reducer
        self._connection = connection
        self._changes = changes

    async def reach(self, version: str, revision: int) -> None:
        """Returns when the state holds that revision, or when the server cannot be asked for it.

        The mutation is durable already, so a failure here is none of it: the next watch or refresh catches up.
        """
        if self._connection.state is ConnectionState.connected:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._watched(version, revision)
            except TimeoutError:
                pass
        backoff = Backoff(_AGAIN)
        for _ in range(_TRIES):
            if self._reducer.holds(version, revision):
                return
            try:
                await self._connection.fetch()
            except PaiError as error:
                logger.info("The state after a mutation could not be read: %s", error)
                return
            if not self._reducer.holds(version, revision):
                await asyncio.sleep(backoff.next())

    async def _watched(self, version: str, revision: int) -> None:
        while not self._reducer.holds(version, revision):
            await self._changes.after(self._changes.count)
