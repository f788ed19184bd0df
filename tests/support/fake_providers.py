"""A provider on loopback that speaks OpenAI's two formats, Anthropic's and Gemini's, and does what a test tells it.

Bare asyncio, because tests cut connections in the middle and want to know when the other side closed one.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.listening import Listener
from support.provider_answers import Answer, Call, Text
from support.provider_formats import FORMATS, error_body

PROVIDERS = ("openai", "openai-chat", "anthropic", "google")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How one request is answered.

    With `status` an error; else the answer in the format of the path that was asked. `cut_after` events the connection
    is closed without an end; before event number `gate_at` the server waits for the `gate`; `raw` replaces the events.
    """

    answer: Answer | None = None
    status: int | None = None
    message: str = "It went wrong."
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    content_type: str = "text/event-stream"
    cut_after: int | None = None
    gate: asyncio.Event | None = None
    gate_at: int = 0
    pause: float = 0


@dataclass(frozen=True)
class Recorded:
    provider: str
    path: str
    headers: dict[str, str]
    body: Any


def text_reply(*deltas: str) -> Reply:
    return Reply(answer=Answer(items=[Text(deltas)]))


def call_reply(*calls: tuple[str, str, Any]) -> Reply:
    """A turn of (id, name, input) tool calls."""
    return Reply(answer=Answer(items=[Call(id, name, json.dumps(input)) for id, name, input in calls]))


class FakeProvider:
    """Answers with the replies given, in order, the last one again and again. `closed` counts what clients gave up."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.requests: list[Recorded] = []
        self.closed = 0
        self.streaming = 0
        self._listener = Listener(self._serve)

    def base_url(self, provider: str) -> str:
        """What `resolve_model(..., base_url=...)` takes."""
        root = f"http://127.0.0.1:{self._listener.port}"
        return f"{root}/v1" if provider.startswith("openai") else root

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._listener.refuse()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeProvider"]:
        await self._listener.open()
        try:
            yield self
        finally:
            await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await _read(reader):
                self.requests.append(request)
                reply = self.replies.popleft() if len(self.replies) > 1 else self.replies[0]
                answering = asyncio.create_task(self._answer(writer, request, reply))
                # The client sends nothing while it is answered: whatever is read now is its goodbye.
                watching = asyncio.create_task(reader.read(1))
                try:
                    await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
                    self.closed += not answering.done()
                finally:
                    answering.cancel()
                    watching.cancel()
                    kept, _ = await asyncio.gather(answering, watching, return_exceptions=True)
                if isinstance(kept, Exception):
                    raise kept
                if kept is not True:
                    break

    async def _answer(self, writer: asyncio.StreamWriter, request: Recorded, reply: Reply) -> bool:
        """Whether the connection can go on."""
        if reply.gate is not None and reply.gate_at < 0:
            await reply.gate.wait()
        if reply.status is not None:
            body = json.dumps(error_body(request.provider, reply.status, reply.message, reply.code)).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
            writer.write(_head(reply.status, headers) + body)
            await writer.drain()
            return True
        if reply.raw is not None:
            events = [reply.raw]
        else:
            assert reply.answer is not None
            events = FORMATS[request.provider](reply.answer)
        headers = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
        writer.write(_head(200, headers))
        self.streaming += 1
        try:
            for number, event in enumerate(events):
                if number == reply.cut_after:
                    return False
                if reply.gate is not None and number == reply.gate_at:
                    await writer.drain()
                    await reply.gate.wait()
                if reply.pause:
                    await asyncio.sleep(reply.pause)
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
            if reply.gate is not None and reply.gate_at >= len(events):
                await reply.gate.wait()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.streaming -= 1
        return True


@asynccontextmanager
async def fake_provider(*replies: Reply) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(*replies).running() as fake:
        yield fake


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read(reader: asyncio.StreamReader) -> Recorded | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    path = head[0].split(" ")[1]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Recorded(_provider(path), path, headers, json.loads(body) if body else None)


def _provider(path: str) -> str:
    for ending, provider in (
        ("/responses", "openai"),
        ("/chat/completions", "openai-chat"),
        ("/messages", "anthropic"),
    ):
        if path.split("?")[0].endswith(ending):
            return provider
    return "google"
