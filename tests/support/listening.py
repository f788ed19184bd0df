"""A server on loopback for tests, which leaves nothing behind that the garbage collector would find later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Listener:
    """`serve` runs once for every connection, which is closed when `serve` ends.

    A connection is ours from the moment it is accepted: `asyncio.Server` of Python 3.11 waits for none, and a task that
    is cancelled before its first step never comes to a `finally` of its own.
    """

    def __init__(self, serve: Serve, port: int = 0) -> None:
        self.port = port
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Safe to call twice; once it has a port it keeps it."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Lets nobody in any more; the connections there are stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Lets nobody in any more, and resets every connection. Safe to call twice."""
        self.refuse()
        await asyncio.gather(*_being_accepted(), return_exceptions=True)
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)  # the sockets are closed by the loop's next turn

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())


@asynccontextmanager
async def listening(serve: Serve, port: int = 0) -> AsyncIterator[Listener]:
    listener = Listener(serve, port)
    await listener.open()
    try:
        yield listener
    finally:
        await listener.close()


def _being_accepted() -> list[asyncio.Task[Any]]:
    """The tasks of this loop's servers that have a socket and no connection yet; `serve` is called before they end."""
    return [task for task in asyncio.all_tasks() if "_accept_connection2" in repr(task.get_coro())]
