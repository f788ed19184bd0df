"""The list of threads and its watch."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from fake_thread import AT
from fake_transport import IMPATIENT, PolledTransport

from pai.client import ThreadHeadChanged, ThreadHeadRemoved, create_agent_client
from pai.protocol.errors import Forbidden, TransportError
from pai.protocol.state import ThreadListResult, ThreadSummary
from support.waiting import wait_until

SECONDS = 10


def summary(thread_id: str, revision: int = 1, version: str | None = None) -> dict[str, Any]:
    return {
        "threadId": thread_id,
        "version": version or f"v_{thread_id}",
        "status": "idle",
        "revision": revision,
        "createdAt": AT,
        "updatedAt": AT,
    }


def head(thread_id: str, revision: int = 1) -> dict[str, Any]:
    return {"type": "head", "summary": summary(thread_id, revision)}


class HeadsTransport(PolledTransport):
    """Each connection sends `ready` and the events of its script, and is lost; the last one stays open."""

    def __init__(self, scripts: list[Any], lists: list[list[dict[str, Any]]], page: int = 100) -> None:
        super().__init__()
        self.scripts = scripts
        self.lists = lists
        self.page = page
        self.open = 0

    async def list_threads(self, options: Any) -> ThreadListResult:
        start = int(options.page_token or 0)
        items = self.lists[0]
        end = start + self.page
        more = str(end) if end < len(items) else None
        if more is None and len(self.lists) > 1:
            self.lists.pop(0)
        return ThreadListResult(items=[ThreadSummary.read(item) for item in items[start:end]], next_page_token=more)

    async def watch_thread_heads(self, watch: Any) -> AsyncGenerator[Any, None]:
        script = self.scripts.pop(0) if self.scripts else None
        if isinstance(script, Exception):
            raise script
        if watch.on_connection_established is not None:
            watch.on_connection_established()
        self.open += 1
        try:
            yield {"type": "ready"}
            if script is None:
                await asyncio.Event().wait()
            for event in script:
                yield event
        finally:
            self.open -= 1


async def events(transport: HeadsTransport, count: int) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []
    async with asyncio.timeout(SECONDS):
        async with create_agent_client(transport, reconnect=IMPATIENT).threads.watch_heads() as heads:
            async for event in heads:
                if isinstance(event, ThreadHeadChanged):
                    seen.append((event.summary.thread_id, event.summary.revision))
                else:
                    seen.append((event.thread_id, "removed"))
                if len(seen) == count:
                    return seen
    raise AssertionError


async def test_what_changed_between_two_connections_is_found_by_listing() -> None:
    transport = HeadsTransport(
        [[head("a", 2), head("b")], TransportError("down"), []],
        [[summary("a")], [summary("b", 3), summary("c")]],
    )
    assert await events(transport, 6) == [("a", 1), ("a", 2), ("b", 1), ("b", 3), ("c", 1), ("a", "removed")]


async def test_old_news_and_news_of_what_was_removed_are_dropped() -> None:
    removed = {"type": "removed", "threadId": "a", "version": "v_a"}
    transport = HeadsTransport(
        [[head("a", 5), head("a", 4), removed, removed, head("a", 6), head("b")]], [[summary("a", 5)]]
    )
    assert await events(transport, 3) == [("a", 5), ("a", "removed"), ("b", 1)]


async def test_a_list_is_read_page_by_page() -> None:
    transport = HeadsTransport([None], [[summary(str(n)) for n in range(7)]], page=3)
    assert await events(transport, 7) == [(str(n), 1) for n in range(7)]


async def test_a_watch_that_is_left_and_forgotten_gives_its_connection_back() -> None:
    transport = HeadsTransport([], [[summary("a")]])
    client = create_agent_client(transport, reconnect=IMPATIENT)
    async for _ in client.threads.watch_heads():
        assert transport.open == 1
        break
    await wait_until(lambda: transport.open == 0)


async def test_an_error_that_trying_again_cannot_help_is_raised() -> None:
    with pytest.raises(Forbidden):
        await events(HeadsTransport([Forbidden()], [[]]), 1)


async def test_a_removed_thread_is_told_with_its_version() -> None:
    transport = HeadsTransport([[{"type": "removed", "threadId": "a", "version": "v9"}]], [[]])
    established: list[int] = []
    client = create_agent_client(transport, reconnect=IMPATIENT)
    async with asyncio.timeout(SECONDS):
        heads = client.threads.watch_heads(on_connection_established=lambda: established.append(1))
        assert await anext(heads) == ThreadHeadRemoved("a", "v9")
        await heads.aclose()
    assert established == [1]


async def test_a_transport_without_heads_cannot_watch_them(polled: PolledTransport) -> None:
    with pytest.raises(TransportError):
        create_agent_client(polled).threads.watch_heads()


async def test_new_thread_ids_differ_and_are_ids(polled: PolledTransport) -> None:
    client = create_agent_client(polled)
    assert client.new_thread_id() != client.new_thread_id()
    async with client:
        pass
    assert polled.closed
