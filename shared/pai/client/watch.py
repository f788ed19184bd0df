"""An iterator over the states of a thread, as fast as its consumer takes them."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from pai.client.changes import Changes
from pai.client.connection import ThreadConnection, Watcher
from pai.client.thread_state import ThreadState


class StateWatch:
    """`async for state in thread.watch()`. States in between are joined: a slow consumer gets the newest.

    It holds the connection from the first state that is asked for until it is closed or forgotten. `async with` closes
    it for certain.
    """

    def __init__(
        self,
        connection: ThreadConnection,
        changes: Changes,
        look: Callable[[], ThreadState | None],
        watcher: Watcher,
    ) -> None:
        """`look` gives the state, or None while there is nothing to show."""
        self._connection = connection
        self._changes = changes
        self._look = look
        self._watcher = watcher
        self._attached = False
        self._closed = False
        self._shown: ThreadState | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ThreadState:
        if self._closed:
            raise StopAsyncIteration
        if not self._attached:
            self._attached = True
            self._connection.attach(self._watcher)
        while True:
            seen = self._changes.count
            if self._connection.failure is not None:
                failure = self._connection.failure
                self.close()
                raise failure
            state = self._look()
            if state is not None and state is not self._shown:
                self._shown = state
                return state
            await self._changes.after(seen)
            if self._closed:
                raise StopAsyncIteration

    def close(self) -> None:
        """Give the connection back. Safe to call twice; a pending `async for` ends with the next change."""
        self._closed = True
        if self._attached:
            self._attached = False
            self._connection.detach(self._watcher)
            self._changes.notify()

    async def aclose(self) -> None:
        """`close`, and wait until the connection was given back."""
        self.close()
        await self._connection.leave(self._watcher)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._attached:
            self._connection.forget(self._watcher)
