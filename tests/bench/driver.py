"""The load driver: HTTP/1.1 by hand on asyncio streams, because it shares the two cores with what it measures."""

import asyncio
import re
import time
from collections.abc import Callable

STAMP = re.compile(rb"@(\d+) ")


class Connection:
    """One keep-alive connection for requests with short answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        try:
            return await self._request(method, path, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            # The server closes connections that were idle for a while.
            self.close()
            self._reader = self._writer = None
            return await self._request(method, path, body)

    async def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        header = await self._reader.readuntil(b"\r\n\r\n")
        status = int(header[9:12])
        lower = header.lower()
        found = re.search(rb"content-length: (\d+)", lower)
        if found:
            return status, await self._reader.readexactly(int(found[1]))
        if b"transfer-encoding: chunked" in lower:
            return status, await self._chunked()
        return status, b""

    async def _chunked(self) -> bytes:
        assert self._reader is not None
        data = b""
        while size := int(await self._reader.readline(), 16):
            data += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return data

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class Watcher(asyncio.Protocol):
    """Reads one event stream; `on_data` sees whole frames, as they come, with the time at which they came."""

    def __init__(self, path: str, on_data: Callable[[bytes, int], None]) -> None:
        self._path = path
        self._on_data = on_data
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    @classmethod
    async def open(cls, port: int, path: str, on_data: Callable[[bytes, int], None]) -> "Watcher":
        _, watcher = await asyncio.get_running_loop().create_connection(lambda: cls(path, on_data), "127.0.0.1", port)
        await watcher.ready
        return watcher

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        request = f"GET {self._path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n"
        self._transport.write(request.encode())  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        frames, _, rest = (self._rest + data).rpartition(b"\n\n")
        self._rest = rest
        if not self.ready.done() and b'"ready"' in frames:
            self.ready.set_result(None)
        if frames:
            self._on_data(frames, now)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("the watch ended"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def send_body(text: str) -> bytes:
    return b'{"message":{"parts":[{"type":"text","text":"%s"}]}}' % text.encode()


def percentile(values: list[float], share: float) -> float:
    """Nearest rank; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
