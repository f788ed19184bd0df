"""Flags between threads: delivered late, twice, or to somebody who is gone."""

import asyncio
import time
from typing import Any

import pytest
from engine_parts import said
from family import Family
from sqlalchemy import select

from pai.engine import api, delivery, relatives
from pai.engine.publication import Publication, head_event
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import NotFound
from pai.protocol.json import loads
from pai.store.clock import now_ms
from pai_workers import effects
from support.waiting import wait_until

HOUR_MS = 3_600_000


async def begin(family: Family, gate: asyncio.Event) -> Any:
    """-> a child that a call has left to itself, in the middle of its answer."""
    family.engine.stage.values["hidden"] = False
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    family.engine.turns.append(tool_call("c1", "leave", {"work": "first"}))
    await family.engine.run()
    await wait_until(lambda: family.model.requests)
    (child,) = await family.children()
    return child


async def ask(family: Family, child: Any, gate: asyncio.Event) -> Any:
    """The owner goes on with the child, which is in the middle of its answer again. -> the run's id."""
    family.turns.append(Turn(chunks=text(["mine ", "own"]), gate=gate, gate_at=2))
    before = len(family.model.requests)
    reply = await api.send(family.engine.runtime, family.caller(), child.thread_id, said("my own question"))
    await wait_until(lambda: len(family.model.requests) > before)
    assert reply.result.run is not None
    return reply.result.run.run_id


async def statuses(family: Family, child: Any) -> list[str]:
    state = await api.get_state(family.engine.runtime, family.caller(), child.thread_id)
    assert state is not None
    return [run.status for run in state.runs]


async def nobody_works(family: Family) -> bool:
    return not await family.children(busy=True)


async def test_a_host_with_a_wrong_clock_writes_flags_with_the_times_of_the_database(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, real = asyncio.Event(), time.time_ns
    await begin(family, gate)
    family.mute(monkeypatch)
    monkeypatch.setattr(time, "time_ns", lambda: real() + HOUR_MS * 1_000_000)
    await family.engine.stop()
    monkeypatch.setattr(time, "time_ns", real)
    (flag,) = await family.flags()
    async with family.engine.runtime.store.read() as connection:
        clock: int = (await connection.execute(select(now_ms()))).scalar_one()
    assert clock - HOUR_MS / 2 < flag.created_at <= clock
    assert flag.created_at < flag.due_at < clock + HOUR_MS / 2
    await family.deliver_late()
    gate.set()
    await wait_until(lambda: nobody_works(family))


async def end_of_parent(family: Family, how: str) -> None:
    if how == "stop":
        await family.engine.stop()
    else:
        await api.delete(family.engine.runtime, family.engine.caller(), "t")


@pytest.mark.parametrize("how", ["stop", "delete"])
async def test_a_stop_that_comes_late_leaves_a_run_that_the_owner_began_since(
    family: Family, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    gate, gate2 = asyncio.Event(), asyncio.Event()
    child = await begin(family, gate)
    family.mute(monkeypatch)
    await end_of_parent(family, how)
    gate.set()
    await wait_until(lambda: nobody_works(family))
    await ask(family, child, gate2)
    await family.deliver_late()
    gate2.set()
    await wait_until(lambda: nobody_works(family))
    assert await statuses(family, child) == ["completed", "completed"]
    assert await family.flags() == []
    assert (await family.engine.thread(child.thread_id)).parent_version is None or how == "stop"


@pytest.mark.parametrize("how", ["stop", "delete"])
async def test_an_idle_child_that_the_owner_asks_again_is_not_stopped_with_its_parent(
    family: Family, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    gate, gate2 = asyncio.Event(), asyncio.Event()
    gate.set()
    child = await begin(family, gate)
    await wait_until(lambda: nobody_works(family))
    family.mute(monkeypatch)
    await end_of_parent(family, how)
    await ask(family, child, gate2)
    await family.deliver_late()
    gate2.set()
    await wait_until(lambda: nobody_works(family))
    assert await statuses(family, child) == ["completed", "completed"]


async def test_watchers_of_the_list_see_a_child_lose_its_parent(family: Family) -> None:
    gate = asyncio.Event()
    gate.set()
    child = await begin(family, gate)
    await wait_until(lambda: nobody_works(family))
    await family.settle()
    told: list[dict[str, Any]] = []
    for runtime in family.engine.processes:
        announce = runtime.announcer.announce

        def heard(publication: Publication, announce: Any = announce) -> Any:
            if publication.head:
                told.append(loads(head_event(publication.thread))["summary"])
            return announce(publication)

        runtime.announcer.announce = heard  # type: ignore[method-assign]
    await end_of_parent(family, "delete")
    await family.settle()
    assert [(summary["threadId"], summary.get("parentThreadId")) for summary in told] == [(child.thread_id, None)]


async def test_a_flag_that_is_delivered_twice_takes_no_step_from_its_worker(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    child = await begin(family, gate)
    family.mute(monkeypatch)
    await family.engine.stop()
    (flag,) = await family.flags()
    first, second = (worker.runtime for worker in family.engine.workers)
    await delivery._deliver_all(first, [flag])
    gate.set()
    await wait_until(lambda: nobody_works(family))
    gate2 = asyncio.Event()
    await ask(family, child, gate2)
    await delivery._deliver_all(second, [flag])
    gate2.set()
    await wait_until(lambda: nobody_works(family))
    assert await statuses(family, child) == ["cancelled", "completed"]
    steps = await family.engine.steps(child.thread_id)
    assert [step.attempt for step in steps] == [2, 1]


async def test_a_flag_that_was_taken_meanwhile_fences_nothing(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    child = await begin(family, gate)
    family.mute(monkeypatch)
    await family.engine.stop()
    flags = await family.flags()
    await family.engine.execute("DELETE FROM flag")
    await delivery._deliver_all(family.engine.workers[1].runtime, flags)
    gate.set()
    await wait_until(lambda: nobody_works(family))
    assert await statuses(family, child) == ["completed"]


async def test_a_stop_that_cannot_be_delivered_for_long_is_kept(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    child = await begin(family, gate)
    family.mute(monkeypatch)
    await family.engine.stop()
    await family.engine.execute("UPDATE flag SET created_at = 1")
    real = delivery.take_over

    async def fails(*_: Any) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(delivery, "take_over", fails)
    await family.deliver_late()
    monkeypatch.setattr(delivery, "take_over", real)
    await family.deliver_late()
    assert await statuses(family, child) == ["cancelled"]
    gate.set()


async def test_a_child_that_was_started_in_vain_is_flagged_no_more_when_its_call_is_over(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: Any, **__: Any) -> str:
        raise NotFound("agent")

    monkeypatch.setattr(effects, "start_child", refuses)
    family.engine.turns.append(tool_call("c1", "leave", {"work": "first"}))
    await family.engine.run()
    await family.engine.stop()
    assert await family.flags() == []


async def test_a_stop_reads_only_the_children_that_work(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    for work in ("one", "two"):
        family.engine.turns.append(tool_call("c1", "leave", {"work": work}))
        await family.engine.run()
    await wait_until(lambda: nobody_works(family))
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    family.engine.turns.append(tool_call("c1", "leave", {"work": "three"}))
    await family.engine.run()
    await wait_until(lambda: len(family.model.requests) == 3)
    family.mute(monkeypatch)
    parent = await family.engine.thread()
    async with family.engine.runtime.store.read() as connection:
        assert len(await relatives._children(connection, parent.version, relatives._CHILDREN)) == 3
        assert len(await relatives._children(connection, parent.version, relatives._BUSY_CHILDREN)) == 1
    await family.engine.stop()
    assert len(await family.flags()) == 1
    await family.deliver_late()
    gate.set()
