"""Delete and re-create, in every state, with watchers and work in flight: nothing of the old is in the new."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial

import pytest
from engine_parts import Engine, text_of
from sqlalchemy import text as sql

from pai.client import Thread, create_agent_client, create_direct_transport
from pai.engine import api
from pai.log.hub import Hub
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.identity import Identity
from support.waiting import wait_until

TABLES = ("thread", "run", "message", "step", "queue_item", "receipt", "journal", "flag", "file")
ANN = Identity(subject="ann")


async def _idle(engine: Engine, gate: asyncio.Event) -> None:
    await engine.run("old")


async def _in_text(engine: Engine, gate: asyncio.Event) -> None:
    engine.turns.append(Turn(chunks=text(["old ", "older"]), gate=gate, gate_at=2))
    await engine.send("old", messageId="m1", key="k1")
    await wait_until(lambda: engine.model.requests)


async def _before_a_worker(engine: Engine, gate: asyncio.Event) -> None:
    engine.post.holds = True
    await engine.send("old", messageId="m1", key="k1")


async def _in_a_tool(engine: Engine, gate: asyncio.Event) -> None:
    engine.turns.append(tool_call("c1", "hold", {"name": "old"}))
    await engine.send("old")
    await wait_until(lambda: engine.stage.count("hold"))


async def _waiting(engine: Engine, gate: asyncio.Event) -> None:
    engine.turns.append(tool_call("c1", "publish", {"title": "old"}))
    await engine.send("old")
    await engine.actions()


async def _queued(engine: Engine, gate: asyncio.Event) -> None:
    await _in_text(engine, gate)
    await engine.send("old, too", queue={"mode": "queue"})
    await engine.send("old, first", queue={"mode": "steer"})


STATES = [_idle, _in_text, _before_a_worker, _in_a_tool, _waiting, _queued]


@pytest.mark.parametrize("begin", STATES, ids=lambda begin: begin.__name__.strip("_"))
async def test_nothing_of_a_deleted_thread_appears_in_the_next_one_for_any_watcher(
    engine: Engine, begin: Callable[[Engine, asyncio.Event], Awaitable[None]]
) -> None:
    gate = asyncio.Event()
    async with AsyncExitStack() as stack:
        revisions = partial(api.revisions, engine.runtime)
        hub = await stack.enter_async_context(
            Hub(engine.runtime.log, revisions=revisions, check_every=timedelta(seconds=1), max_count=100)
        )
        client = create_agent_client(create_direct_transport(engine.runtime, ANN, "main", hub=hub))
        seen: list[tuple[str | None, str]] = []
        thread = client.thread("t")
        watching = asyncio.create_task(_watch(thread, seen))
        stack.callback(watching.cancel)
        await begin(engine, gate)
        old = (await engine.thread()).version
        await wait_until(lambda: any(version == old for version, _ in seen))
        await api.delete(engine.runtime, engine.caller(), "t")
        assert await api.get_state(engine.runtime, engine.caller(), "t") is None
        engine.turns.clear()
        engine.turns.append("new answer")
        new = (await engine.send("new", messageId="m1", key="k1")).result
        assert new.version != old
        gate.set()
        engine.stage.gate("old").set()
        engine.post.release()
        state = await engine.idle()
        assert [text_of(message) for message in state["messages"]] == ["new", "new answer"]
        assert len(state["runs"]) == 1
        for worker in engine.workers:
            await worker.quiet()
        await wait_until(lambda: seen[-1] == (new.version, "new|new answer"), saw=lambda: seen[-5:])
        assert not any("old" in words for version, words in seen if version == new.version)
        assert not any("new" in words for version, words in seen if version == old)
        versions = [version for version, _ in seen]
        assert versions.index(new.version) > max(n for n, version in enumerate(versions) if version == old)
        assert (await engine.state())["messages"] == state["messages"]
        assert await api.revisions(engine.runtime, [old]) == {}


async def _watch(thread: Thread, seen: list[tuple[str | None, str]]) -> None:
    async for state in thread.watch():
        words = "|".join(message.text for message in state.messages)
        seen.append((state.thread.version, words))


async def test_after_a_hundred_rounds_of_create_use_and_delete_nothing_is_left(engine: Engine) -> None:
    before = await _counts(engine)
    for number in range(100):
        gate = asyncio.Event()
        await STATES[number % len(STATES)](engine, gate)
        await api.delete(engine.runtime, engine.caller(), "t")
        gate.set()
        engine.stage.gate("old").set()
        engine.post.release()
        for worker in engine.workers:
            await worker.quiet()
            await worker.runtime.settle()
        engine.turns.clear()
        engine.model.requests.clear()
        engine.stage.calls.clear()
        engine.stage.gates.clear()
    for runtime in engine.runtimes:
        await runtime.settle()
    assert await _counts(engine) == before
    await _only_tombstones(engine)


async def _counts(engine: Engine) -> dict[str, int]:
    async with engine.runtime.store.read() as connection:
        return {
            table: (await connection.execute(sql(f"SELECT count(*) FROM {table}"))).scalar_one() for table in TABLES
        }


async def _only_tombstones(engine: Engine) -> None:
    """What refuses late publishes of a deleted thread goes by itself, and holds nothing of it."""
    redis = engine.runtime.log.redis
    keys = [key async for key in redis.scan_iter("*")]
    assert len(keys) <= 100
    for key in keys:
        assert 0 < await redis.ttl(key) <= 3600
        assert await redis.type(key) in (b"hash", "hash"), key
        assert await redis.memory_usage(key) < 300
