"""A server of one fake thread on a raw socket, which loses connections where the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from fake_thread import FakeThread

from pai.protocol.json import dumps, loads
from pai.protocol.sse import KEEP_ALIVE, frame
from support.listening import listening

Answer = tuple[int, Any]


class Lost(Exception):
    """The connection goes away without an answer."""


class FakeServer:
    """`routes[(method, path)]` answers a request with (status, JSON), or raises Lost. `cut_after`: how many events a
    watch sends before its connection is lost; then the counting begins again."""

    def __init__(self) -> None:
        self.threads: dict[str, FakeThread] = {}
        self.routes: dict[tuple[str, str], Callable[[Any, dict[str, str]], Answer]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.watches: list[str | None] = []
        self.cut_after: int | None = None
        self.mid_event = False
        self.silent = False
        self.url = ""

    @property
    def agent_url(self) -> str:
        return f"{self.url}/api/pai/main"

    def count(self, method: str, path: str) -> int:
        return sum(1 for request in self.requests if request[:2] == (method, path))

    @asynccontextmanager
    async def serve(self, *, port: int = 0) -> AsyncIterator["FakeServer"]:
        async with listening(self._connected, port) as listener:
            self.url = f"http://127.0.0.1:{listener.port}"
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._requests(reader, writer)
        except (Lost, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            method, target, _ = line.decode().split(" ", 2)
            headers = {}
            while (header := (await reader.readline()).decode().strip()) != "":
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path, _, query = target.partition("?")
            path = unquote(path.removeprefix("/api/pai/main"))
            content = loads(body) if body and headers.get("content-type") == "application/json" else body
            self.requests.append((method, path, headers, content))
            if path.endswith("/watch") and (method, path) not in self.routes:
                await self._watch(path, headers, query, writer)
                return
            status, answer = self._answer(method, path, content, headers)
            problem = status >= 400
            kind = "application/problem+json" if problem else "application/json"
            encoded = answer if isinstance(answer, bytes) else b"" if answer is None else dumps(answer)
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(encoded)}\r\n\r\n".encode()
                + encoded
            )
            await writer.drain()

    def _answer(self, method: str, path: str, content: Any, headers: dict[str, str]) -> Answer:
        if (method, path) in self.routes:
            return self.routes[method, path](content, headers)
        if method == "GET" and path.startswith("/threads/") and path.count("/") == 2:
            thread = self.threads.get(path.removeprefix("/threads/"))
            if thread is not None:
                return 200, thread.wire()
        return 404, {"code": "not_found", "what": "thread", "title": "Not found", "status": 404, "detail": "None."}

    async def _watch(self, path: str, headers: dict[str, str], query: str, writer: asyncio.StreamWriter) -> None:
        thread = self.threads[path.removeprefix("/threads/").removesuffix("/watch")]
        position = headers.get("last-event-id")
        self.watches.append(position)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        version, _, number = (position or ":0").rpartition(":")
        continued = version == thread.version
        sequence = int(number) if continued else thread.sequence
        ready = {"type": "ready", "threadId": thread.thread_id, "version": thread.version}
        writer.write(frame(dumps({**ready, "sequence": sequence, "revision": thread.revision})))
        await writer.drain()
        if self.silent:
            await asyncio.Event().wait()
        if not continued:
            assert query == "snapshot=1"
            writer.write(self._frame(thread, {"type": "snapshot", "state": thread.wire(), "sequence": thread.sequence}))
        left = self.cut_after
        while True:
            published = thread.published
            for event in thread.after(sequence):
                data = self._frame(thread, event)
                if left == 0:
                    if self.mid_event:
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                    raise Lost
                left = None if left is None else left - 1
                sequence = event["sequence"]
                writer.write(data)
                if event["sequence"] % 7 == 0:
                    writer.write(KEEP_ALIVE)
                await writer.drain()
            await published.wait()

    @staticmethod
    def _frame(thread: FakeThread, event: dict[str, Any]) -> bytes:
        return frame(dumps(event), f"{thread.version}:{event['sequence']}".encode())
