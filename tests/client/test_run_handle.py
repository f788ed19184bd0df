"""Waiting for runs, following them, and what happens when they or their threads go."""

import asyncio
from typing import Any

import pytest
from fake_thread import FakeThread, long_answer, run_record
from fake_transport import IMPATIENT, PolledTransport, StreamTransport

from pai.client import AgentClient, RunStatus, create_agent_client
from pai.protocol.errors import RunGone, RunNotActive, ThreadDeleted
from support.waiting import wait_until

SECONDS = 10


def waiting(thread: FakeThread, run_id: str = "run_1") -> None:
    thread.commit(runs=[run_record(thread.thread_id, run_id, "waiting")], activeRunId=None)


async def started(transport: StreamTransport, wait: Any) -> "asyncio.Task[Any]":
    """The wait as a task, once it is connected."""
    before = transport.connections
    task = asyncio.ensure_future(wait)
    await wait_until(lambda: transport.connections > before)
    return task


async def test_waiting_until_idle_goes_on_through_waiting_and_until_blocked_does_not(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    run = client.thread("t").run("run_1")
    async with asyncio.timeout(SECONDS):
        blocked = await started(transport, run.wait_until_blocked())
        idle = asyncio.ensure_future(run.wait_until_idle())
        waiting(thread)
        state = await blocked
        assert state.run("run_1").status is RunStatus.waiting  # type: ignore[union-attr]
        assert not idle.done()
        thread.finish()
        state = await idle
        assert state.run("run_1").status is RunStatus.completed  # type: ignore[union-attr]
    assert transport.connections == 1


async def test_a_wait_for_a_run_that_is_unknown_at_first_goes_on_across_lost_connections(
    client: AgentClient, transport: StreamTransport
) -> None:
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS):
        task = await started(transport, handle.run("run_1").wait_until_idle())
        transport.cut()
        await wait_until(lambda: transport.connections == 2)
        thread = transport.add(FakeThread())
        transport.cut()
        await wait_until(lambda: transport.connections == 3)
        thread.begin()
        transport.cut()
        await wait_until(lambda: transport.connections == 4)
        assert not task.done()
        thread.finish()
        state = await task
    assert state.run("run_1").finish_reason == "stop"  # type: ignore[union-attr]


async def test_a_status_that_was_passed_counts_and_one_that_can_never_come_raises(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    thread.finish(status="failed")
    run = client.thread("t").run("run_1")
    async with asyncio.timeout(SECONDS):
        assert (await run.wait_until_status("running")).status is RunStatus.failed
        assert (await run.wait_until_status(RunStatus.queued)).status is RunStatus.failed
        assert (await run.wait_until(RunStatus.failed)).run("run_1") is not None
        with pytest.raises(RunNotActive) as raised:
            await run.wait_until_status(RunStatus.completed)
        assert raised.value.run_status == "failed"
        with pytest.raises(RunNotActive):
            await run.wait_until_status(RunStatus.waiting)


async def test_a_wait_on_a_run_that_was_removed_raises_run_gone(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    run = client.thread("t").run("run_1")
    async with asyncio.timeout(SECONDS):
        task = await started(transport, run.wait_until_idle())
        await wait_until(lambda: run._version == "v1")
        thread.commit(removedRunIds=["run_1"])
        with pytest.raises(RunGone):
            await task
        with pytest.raises(RunGone):
            await run.wait_until_idle()


async def test_a_wait_on_a_deleted_thread_raises_thread_deleted_even_for_an_unknown_run(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS):
        known = await started(transport, handle.run("run_1").wait_until_idle())
        unknown = asyncio.ensure_future(handle.run("run_9").wait_until_blocked())
        await wait_until(lambda: handle.get_state().thread.version == "v1")
        await asyncio.sleep(0)
        del transport.threads["t"]
        thread.delete()
        for task in (known, unknown):
            with pytest.raises(ThreadDeleted):
                await task


async def test_a_wait_for_a_run_of_a_thread_that_was_deleted_meanwhile_raises_at_once(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread()).begin()
    handles = [client.thread("t"), client.thread("t")]
    for handle in handles:
        await handle.refresh()
    del transport.threads["t"]
    async with asyncio.timeout(SECONDS):
        with pytest.raises(ThreadDeleted):
            await handles[0].run("run_9").wait_until_idle()
        with pytest.raises(ThreadDeleted):
            async for _ in handles[1].run("run_9").watch():
                pass


async def test_a_wait_on_a_run_of_an_earlier_incarnation_raises_thread_deleted(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    handle = client.thread("t")
    run = handle.run("run_1")
    async with asyncio.timeout(SECONDS):
        task = await started(transport, run.wait_until_idle())
        await wait_until(lambda: run._version == "v1")
        again = transport.add(FakeThread(version="v2"))
        again.begin("out_7", "run_7")
        transport.cut()
        with pytest.raises(ThreadDeleted):
            await task


@pytest.mark.parametrize(("stop_on", "last"), [("blocked", "waiting"), ("idle", "completed")])
async def test_following_a_run_stops_at_the_chosen_boundary(
    client: AgentClient, transport: StreamTransport, stop_on: Any, last: str
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    statuses: list[str] = []
    async with asyncio.timeout(SECONDS):
        async for state in client.thread("t").run("run_1").watch(stop_on=stop_on):
            statuses.append(state.runs[0].status)
            if len(statuses) == 1:
                waiting(thread)
                thread.commit(runs=[run_record("t")])
                thread.finish()
    assert statuses[0] == "running"
    assert statuses[-1] == last
    await wait_until(lambda: transport.open == 0)


async def test_a_wait_works_where_the_thread_is_polled(polled: PolledTransport) -> None:
    thread = polled.threads["t"] = FakeThread()
    long_answer(thread)
    run = create_agent_client(polled, reconnect=IMPATIENT).thread("t").run("run_1")
    async with asyncio.timeout(SECONDS):
        assert (await run.wait_until_idle()).run("run_1") is not None


async def test_an_old_state_is_not_taken_for_the_present_one(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    waiting(thread)
    handle = client.thread("t")
    await handle.refresh()
    thread.commit(runs=[run_record("t")], activeRunId="run_1")
    async with asyncio.timeout(SECONDS):
        task = await started(transport, handle.run("run_1").wait_until_blocked())
        await wait_until(lambda: handle.get_state().active_run_id == "run_1")
        assert not task.done()
        thread.finish()
        assert (await task).runs[0].status is RunStatus.completed


async def test_the_state_of_a_run_is_asked_of_the_server_and_none_for_an_unknown_one(
    client: AgentClient, transport: StreamTransport
) -> None:
    transport.add(FakeThread()).begin()
    handle = client.thread("t")
    state = await handle.run("run_1").get_state()
    assert state is not None
    assert state.status is RunStatus.running
    assert await handle.run("run_9").get_state() is None
    assert await client.thread("nowhere").run("run_1").get_state() is None
