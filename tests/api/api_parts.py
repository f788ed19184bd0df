"""A served API and a reader of its event streams, for the tests of the HTTP tier."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request

from pai import Agent, Registry
from pai.log.batches import LiveBatch
from pai.log.entries import chunk
from pai.protocol.identity import Identity
from pai.protocol.json import dumps
from pai.protocol.sse import SseDecoder
from pai.settings import Settings
from pai_api.app import create_app
from pai_api.state import ApiState
from support.waiting import PATIENCE, wait_until

BASE = "/api/pai/main"
HELLO = {"message": {"parts": [{"type": "text", "text": "hello"}]}}


def registry() -> Registry:
    agent = Agent("main", model="demo", instructions="Be brief.", description="An agent for tests")

    @agent.tool
    async def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    return Registry(agent, Agent("other", model="demo"))


async def by_header(request: Request) -> Identity | None:
    """An application's own resolver: whoever the header names."""
    user = request.headers.get("x-user")
    return None if user is None else Identity(subject=user)


def by_header_blocking(request: Request) -> Identity | None:
    """The same as a plain function."""
    user = request.headers.get("x-user")
    return None if user is None else Identity(subject=user)


@dataclass
class ServedApi:
    app: FastAPI
    server: uvicorn.Server
    client: httpx.AsyncClient

    @property
    def state(self) -> ApiState:
        state: ApiState = self.app.state.pai
        return state

    @property
    def address(self) -> tuple[str, int]:
        return self.client.base_url.host, self.client.base_url.port or 80

    @asynccontextmanager
    async def watch(
        self, path: str, *, headers: Mapping[str, str] | None = None, **params: str
    ) -> AsyncIterator["EventReader"]:
        async with self.client.stream("GET", path, params=params, headers=headers) as response:
            yield EventReader(response)

    async def send(self, thread_id: str, text: str = "hello", **more: Any) -> dict[str, Any]:
        body = {"message": {"parts": [{"type": "text", "text": text}]}, **more}
        answer = await self.client.post(f"{BASE}/threads/{thread_id}/send", json=body)
        assert answer.status_code in (200, 202), answer.text
        return dict(answer.json())

    async def snapshot(self, thread_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"{BASE}/threads/{thread_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def stream_chunks(
        self, version: str, *chunks: dict[str, Any], batch: int, run_id: str, message_id: str
    ) -> int:
        """What a worker does while a model answers; its step has the number 1. -> the last sequence."""
        entries = [chunk(run_id, message_id, dumps(one)) for one in chunks]
        live = LiveBatch(version=version, epoch=1, number=1, attempt=1, batch=batch, entries=entries)
        [result] = await self.state.runtime.log.publish([live])
        return result.last


class EventReader:
    """Events as `(id, data)`; ids of the standard stay in force, so those of `ready` are what came before."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.raw = b""
        self._decoder = SseDecoder()
        self._pieces = response.aiter_raw()
        self._events: list[tuple[str, dict[str, Any]]] = []

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Raises EOFError when the stream has ended, TimeoutError when nothing but comments comes."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while not self._events:
                await self.more()
        return self._events.pop(0)

    async def next_of(self, kind: str) -> tuple[str, dict[str, Any]]:
        """The next event of a type; others before it are dropped."""
        while True:
            identifier, data = await self.next()
            if data["type"] == kind:
                return identifier, data

    async def until(self, sequence: int) -> list[dict[str, Any]]:
        """All events up to this sequence."""
        events: list[dict[str, Any]] = []
        while not events or events[-1].get("sequence", -1) < sequence:
            events.append((await self.next())[1])
        return events

    async def more(self) -> None:
        """Reads what comes next. Raises EOFError."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            try:
                piece = await anext(self._pieces)
            except (StopAsyncIteration, httpx.RemoteProtocolError):
                raise EOFError from None
        self.raw += piece
        self._events += [(event.id, json.loads(event.data)) for event in self._decoder.feed(piece)]

    async def end(self) -> None:
        """Reads to the end."""
        with contextlib.suppress(EOFError):
            while True:
                await self.more()


@asynccontextmanager
async def served(settings: Settings, agents: Registry | None = None, **headers: str) -> AsyncIterator[ServedApi]:
    """The application on a real server, on a port of its own."""
    app = create_app(settings, agents or registry())
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await wait_until(lambda: server.started or serving.done())
            if serving.done():
                serving.result()
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE.total_seconds()) as client:
                yield ServedApi(app, server, client)
        finally:
            server.should_exit = True
            app.state.pai.drain.start()
            await serving
