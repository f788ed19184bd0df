"""A proxy between a client and Redis, which loses, cuts and silences as a network does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from support.listening import listening

MESSAGE = "msg_1"
RUN = "run_1"


class Proxy:
    """A TCP proxy to a Redis server. With `lose_replies` it cuts the connection instead of passing a reply on."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.target = f"{host}:{port}"
        self.lose_replies = False
        self._muted: set[asyncio.StreamWriter] = set()
        self.lost = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """Closes every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def mute(self) -> None:
        """The connections that there are stay open, and nothing comes through any more."""
        self._muted |= self._writers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
            self._writers |= {writer, there_writer}
            try:
                await asyncio.gather(self._copy(reader, there_writer), self._copy(there_reader, writer, replies=True))
            finally:
                self._writers -= {writer, there_writer}
                there_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if replies and self.lose_replies:
                    self.lost += 1
                    break
                if writer not in self._muted:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        async with listening(self._serve) as listener:
            self.port = listener.port
            yield self


def proxy_to(url: str) -> Proxy:
    parts = urlsplit(url)
    return Proxy(parts.hostname or "127.0.0.1", parts.port or 6379)
