"""A TCP proxy that a test can cut: what a network outage looks like to a client, for any protocol."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Self

from support.listening import Listener

_CHUNK = 64 * 1024


class Proxy:
    """Listens on `port` of loopback and forwards to a server while it is `up`.

    `cut` ends every connection and refuses new ones; `restore` lets them in again. `stall` keeps connections open and
    moves no byte; `resume` goes on. `connections` counts what was accepted, `requests` what clients sent, each in one
    piece.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = Listener(self._serve)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0
        self.requests = 0

    @property
    def port(self) -> int:
        return self._listener.port

    @classmethod
    @asynccontextmanager
    async def to(cls, host: str, port: int) -> AsyncIterator[Self]:
        proxy = cls(host, port)
        await proxy.restore()
        try:
            yield proxy
        finally:
            await proxy.cut()

    async def cut(self) -> None:
        """Resets the connections there are and refuses new ones."""
        await self._listener.close()

    async def restore(self) -> None:
        """Accepts connections, on the same port as before."""
        await self._listener.open()

    def stall(self) -> None:
        """A network that swallows everything: connections stay, and nothing arrives."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        outward: asyncio.StreamWriter | None = None
        try:
            inward, outward = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, outward, counted=True))
                group.create_task(self._forward(inward, writer))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, outward):
                if end is not None:
                    end.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._flowing.wait()
            self.requests += counted
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


@contextmanager
def proxy_in_thread(host: str, port: int) -> Iterator["ThreadProxy"]:
    """The same for tests that block their own event loop, or have none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = ThreadProxy(Proxy(host, port), loop)
    try:
        proxy.restore()
        yield proxy
    finally:
        proxy.cut()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class ThreadProxy:
    """A `Proxy` in an event loop of its own."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop

    @property
    def port(self) -> int:
        return self._proxy.port

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.cut(), self._loop).result()

    def restore(self) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.restore(), self._loop).result()

    def stall(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.stall)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.resume)
