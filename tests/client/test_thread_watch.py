"""Watching a thread through its handle: one connection, joined states, resuming, repairing, polling."""

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fake_thread import FakeThread, long_answer
from fake_transport import IMPATIENT, PolledTransport, StreamTransport

from pai.client import AgentClient, BackoffSettings, ConnectionState, Thread, ThreadState, create_agent_client
from pai.fold.projection import project
from pai.protocol.errors import Forbidden, TransportError, Unavailable
from support.waiting import wait_until

SECONDS = 10


def shown(state: ThreadState) -> list[dict[str, Any]]:
    return [message.raw for message in state.messages]  # type: ignore[union-attr]


def expected(thread: FakeThread) -> list[dict[str, Any]]:
    return [project(message) for message in thread.snapshot().messages]


async def until(handle: Thread, predicate: Callable[[ThreadState], bool]) -> ThreadState:
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        async for state in states:
            if predicate(state):
                return state
    raise AssertionError("the watch ended")


def finished(state: ThreadState) -> bool:
    return bool(state.runs) and state.runs[-1].status.terminal


async def test_a_watch_shows_an_answer_as_it_comes_and_ends_with_what_the_server_has(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    handle = client.thread("t")
    seen: list[ThreadState] = []
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        async for state in states:
            seen.append(state)
            if len(seen) == 1:
                long_answer(thread)
            if finished(state):
                break
    assert shown(seen[-1]) == expected(thread)
    assert len(seen) > 10
    assert transport.reads == 0


async def test_a_slow_consumer_gets_the_newest_state(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as slow, handle.watch() as fast:
        await anext(slow)
        long_answer(thread)
        async for state in fast:
            if finished(state):
                break
        assert shown(await anext(slow)) == expected(thread)


async def test_all_iterators_of_a_handle_share_one_connection_that_the_last_one_closes(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")
    assert handle.connection is ConnectionState.idle
    async with asyncio.timeout(SECONDS):
        async with handle.watch() as first:
            await anext(first)
            async with handle.watch() as second:
                await anext(second)
                assert transport.connections == 1
            assert handle.connection is ConnectionState.connected
        assert handle.connection is ConnectionState.idle
        await wait_until(lambda: transport.open == 0)


async def test_a_watch_that_is_left_has_given_its_connection_back(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        assert transport.open == 1
    assert transport.open == 0


async def test_an_iterator_that_is_forgotten_gives_the_connection_back(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")
    async for _ in handle.watch():
        break
    gc.collect()
    await wait_until(lambda: transport.open == 0)
    assert handle.connection is ConnectionState.idle


async def test_a_connection_that_is_lost_is_resumed_behind_the_last_event(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    established: list[ConnectionState] = []
    async with (
        asyncio.timeout(SECONDS),
        handle.watch(on_connection_established=lambda: established.append(handle.connection)) as states,
    ):
        await anext(states)
        thread.live("out_1", {"type": "start", "messageId": "out_1"}, {"type": "start-step"})
        await wait_until(lambda: handle._reducer.sequence == thread.sequence)
        position = handle._reducer.position
        transport.cut()
        await wait_until(lambda: transport.connections == 2)
        thread.finish()
        state = await until(handle, finished)
    assert transport.afters == [None, position]
    assert shown(state) == expected(thread)
    assert transport.reads == 0
    assert established == [ConnectionState.connected] * 2


async def test_a_connection_that_brought_something_is_made_again_soon(transport: StreamTransport) -> None:
    patient = BackoffSettings(first=timedelta(milliseconds=1), most=timedelta(hours=1))
    thread = transport.add(FakeThread())
    thread.begin()
    handle = create_agent_client(transport, reconnect=patient).thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        for n in range(20):
            thread.live("out_1", {"type": "data-n", "data": n})
            await wait_until(lambda: handle._reducer.sequence == thread.sequence)
            transport.cut()
    assert transport.connections >= 20


async def test_a_watch_that_cannot_be_opened_is_tried_again_and_says_why(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")

    seen: list[tuple[ConnectionState, Any]] = []

    def refuse() -> None:
        seen.append((handle.connection, handle.connection_error))
        if transport.connections < 4:
            raise [TransportError("down"), Unavailable("busy", retry_after=0.0)][transport.connections % 2]

    transport.refuse = refuse
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        assert (handle.connection, handle.connection_error) == (ConnectionState.connected, None)
    assert [state for state, _ in seen] == [ConnectionState.connecting] + [ConnectionState.reconnecting] * 3
    assert [type(error) for _, error in seen] == [type(None), Unavailable, TransportError, Unavailable]


async def test_an_error_that_trying_again_cannot_help_is_raised_by_every_iterator(
    client: AgentClient, transport: StreamTransport
) -> None:
    def refuse() -> None:
        raise Forbidden()

    transport.refuse = refuse
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS):
        outcomes = await asyncio.gather(
            *(anext(handle.watch()) for _ in range(3)), handle.run("r").wait_until_idle(), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [Forbidden] * 4
        transport.refuse = None
        transport.add(FakeThread())
        assert (await anext(aiter(handle.watch()))).thread.version == "v1"


@pytest.mark.parametrize("snapshots", [True, False])
async def test_a_reset_is_repaired_with_or_without_snapshots_in_the_stream(snapshots: bool) -> None:
    transport = StreamTransport(snapshots=snapshots)
    thread = transport.add(FakeThread())
    handle = create_agent_client(transport, reconnect=IMPATIENT).thread("t")
    thread.begin()
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.commit(lost=True, activeRunId=None)
        thread.reset(jump=1 << 32)
        thread.finish()
        state = await until(handle, finished)
    assert shown(state) == expected(thread)
    assert state.active_run_id is None
    assert (transport.reads == 0) is snapshots


async def test_a_publication_that_was_lost_is_found_by_its_revision(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.commit(lost=True, activeRunId=None)
        thread.finish()
        state = await until(handle, finished)
    assert shown(state) == expected(thread)
    assert transport.reads == 1


async def test_a_repair_waits_for_a_snapshot_that_is_not_older(transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = create_agent_client(transport, reconnect=IMPATIENT).thread("t")
    old = thread.snapshot()
    answers = [old, old]

    async def read(thread_id: str) -> Any:
        transport.reads += 1
        return answers.pop() if answers else thread.snapshot()

    transport.get_thread_state = read  # type: ignore[method-assign]
    texts: list[str] = []
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        async for state in states:
            if state.messages:
                texts.append(state.messages[-1].text)
            if len(texts) == 1:
                thread.live(
                    "out_1",
                    {"type": "start", "messageId": "out_1"},
                    {"type": "text-start", "id": "x"},
                    {"type": "text-delta", "id": "x", "delta": "shown "},
                )
                thread.commit(lost=True, activeRunId=None)
                thread.finish()
            if finished(state):
                break
    assert transport.reads == 3
    assert texts == sorted(texts, key=len)


async def test_a_stream_that_no_snapshot_makes_foldable_is_no_storm_of_requests(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    hidden = {"type": "chunk", "runId": "run_1", "messageId": "hidden", "chunk": {"type": "start-step"}}
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        for _ in range(100):
            thread._publish(dict(hidden))
            for _ in range(10):
                await asyncio.sleep(0)
        thread.finish()
        await until(handle, finished)
    assert transport.reads < 10


async def test_a_thread_that_does_not_exist_yet_is_watched_into_existence(
    client: AgentClient, transport: StreamTransport
) -> None:
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        empty = await anext(states)
        assert empty.thread.version is None
        assert (empty.messages, empty.runs) == ((), ())
        long_answer(transport.add(FakeThread()))
        state = await until(handle, finished)
    assert shown(state) == expected(transport.threads["t"])


async def test_a_deleted_thread_is_empty_and_its_next_incarnation_is_shown(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    long_answer(thread)
    handle = client.thread("t")
    await until(handle, finished)
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        thread.delete()
        del transport.threads["t"]
        gone = await until(handle, lambda state: state.thread.version is None)
        assert gone.messages == ()
        long_answer(transport.add(FakeThread(version="v2")))
        again = await until(handle, finished)
        assert again.thread.version == "v2"


async def test_a_thread_that_was_deleted_while_nobody_was_connected_is_noticed(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        del transport.threads["t"]
        transport.cut()
        assert (await until(handle, lambda state: state.thread.version is None)).messages == ()


async def test_without_a_stream_the_thread_is_polled(polled: PolledTransport) -> None:
    thread = polled.threads["t"] = FakeThread()
    handle = create_agent_client(polled, reconnect=IMPATIENT).thread("t")
    async with asyncio.timeout(SECONDS), handle.watch(interval=timedelta(milliseconds=5)) as states:
        assert (await anext(states)).messages == ()
        await wait_until(lambda: handle.connection is ConnectionState.polling)
        long_answer(thread)
        async for state in states:
            if finished(state):
                break
    assert shown(state) == expected(thread)
    assert handle.connection is ConnectionState.idle


async def test_a_poll_that_fails_is_tried_again(polled: PolledTransport) -> None:
    polled.threads["t"] = FakeThread()
    failures = [TransportError("down")] * 3

    def fail() -> None:
        if failures:
            raise failures.pop()

    polled.before_read = fail
    handle = create_agent_client(polled, reconnect=IMPATIENT).thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        assert (await anext(states)).thread.version == "v1"
    assert polled.reads == 4


async def test_a_refresh_gives_an_empty_state_for_a_thread_that_does_not_exist(client: AgentClient) -> None:
    state = await client.thread("nowhere").refresh()
    assert state.thread.version is None
    assert state.thread.thread_id == "nowhere"
    assert state.thread.status == "idle"


async def test_the_same_state_object_is_given_while_nothing_changes(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    long_answer(thread)
    handle = client.thread("t")
    state = await handle.refresh()
    assert await handle.refresh() is state
    assert handle.get_state() is state
