"""Application data reaches listeners once, whatever happens to connections and attempts."""

import asyncio
from datetime import timedelta
from typing import Any

from fake_thread import FakeThread, open_message
from fake_transport import IMPATIENT, PolledTransport, StreamTransport

from pai.client import AgentClient, PaiDataPart, Thread, create_agent_client
from support.waiting import wait_until

SECONDS = 10


def chart(data: Any, **more: Any) -> dict[str, Any]:
    return {"type": "data-chart", "data": data, **more}


class Heard:
    def __init__(self) -> None:
        self.parts: list[tuple[str | None, Any]] = []

    def __call__(self, part: PaiDataPart) -> None:
        self.parts.append((part.id, part.data))


async def caught_up(handle: Thread, thread: FakeThread) -> None:
    await wait_until(lambda: handle._reducer.sequence == thread.sequence)


async def test_data_is_heard_once_across_lost_connections_repairs_and_refreshes(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    heard = Heard()
    handle = client.thread("t", on_data=heard)
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.live("out_1", chart(1), chart(2, id="a"), chart(3, transient=True))
        thread.live("out_1", {"type": "data-pai-tool-data", "id": "c:p", "data": {"toolCallId": "c"}})
        await caught_up(handle, thread)
        transport.cut()
        await wait_until(lambda: transport.connections == 2)
        await handle.refresh()
        thread.commit(lost=True, activeRunId=None)
        thread.commit(activeRunId="run_1")
        await caught_up(handle, thread)
        thread.live("out_1", chart(4, id="a"))
        await caught_up(handle, thread)
    assert heard.parts == [(None, 1), ("a", 2), (None, 3), ("a", 4)]


async def test_what_a_new_attempt_says_again_is_not_heard_again(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    heard = Heard()
    handle = client.thread("t", on_data=heard)
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.live("out_1", {"type": "start-step"}, chart(1), chart(1), chart(2, id="a"))
        thread.commit(chunks=[("out_1", {"type": "reset-step"})])
        thread.live("out_1", chart(1))
        thread.commit(chunks=[("out_1", {"type": "reset-step"})])
        thread.live("out_1", chart(1), chart(1), chart(1), chart(2, id="a"), chart(3, id="a"))
        await caught_up(handle, thread)
    assert heard.parts == [(None, 1), (None, 1), ("a", 2), (None, 1), ("a", 3)]


async def test_where_the_thread_is_polled_new_data_is_heard_once_too(polled: PolledTransport) -> None:
    thread = polled.threads["t"] = FakeThread()
    thread.begin()
    thread.live("out_1", {"type": "start-step"}, chart("old"))
    heard = Heard()
    handle = create_agent_client(polled, reconnect=IMPATIENT).thread("t", on_data=heard)
    async with asyncio.timeout(SECONDS), handle.watch(interval=timedelta(milliseconds=1)) as states:
        await anext(states)
        await wait_until(lambda: polled.reads > 2)
        thread.live("out_1", chart(1), chart(1), chart(2, id="a"))
        await wait_until(lambda: len(heard.parts) == 3)
        thread.live("out_1", chart(3, id="a"), {"type": "reset-step"}, chart("old"), chart(1), chart(4))
        await wait_until(lambda: len(heard.parts) == 4)
        reads = polled.reads
        await wait_until(lambda: polled.reads > reads + 3)
    assert heard.parts == [(None, 1), (None, 1), ("a", 2), (None, 4)]


async def test_the_same_data_in_another_message_is_other_data(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    heard = Heard()
    handle = client.thread("t", on_data=heard)
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.live("out_1", chart(1, id="a"))
        thread.commit(chunks=[("out_1", {"type": "finish"})], messages=[open_message("out_2")])
        thread.live("out_2", chart(1, id="a"))
        await caught_up(handle, thread)
    assert heard.parts == [("a", 1), ("a", 1)]


async def test_listeners_come_and_go_and_one_that_raises_harms_nobody(
    client: AgentClient, transport: StreamTransport, caplog: Any
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    first, second = Heard(), Heard()

    def broken(part: PaiDataPart) -> None:
        raise ValueError("broken listener")

    handle.subscribe_data(broken)
    unsubscribe = handle.subscribe_data(first)
    handle.subscribe_data(second)
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.live("out_1", chart(1))
        await caught_up(handle, thread)
        unsubscribe()
        unsubscribe()
        thread.live("out_1", chart(2))
        await caught_up(handle, thread)
    assert first.parts == [(None, 1)]
    assert second.parts == [(None, 1), (None, 2)]
    assert "broken listener" in caplog.text
