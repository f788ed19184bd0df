"""Steps that lose their worker: leases, fences, zombies, drain, and dying at the worst moment."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from engine_parts import Engine, calls_of, text_of
from engine_rules import check_rules
from test_engine_stop import chunks_of, published, streaming

from pai.engine.claim import claim
from pai.engine.commit import commit_tool, write_tool
from pai.engine.locked import lock_by_version
from pai.engine.streaming import checkpoint
from pai.engine.takeover import fence
from pai.engine.transaction import StepLost
from pai.fold import Fold
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.store.tables import Step
from support.waiting import wait_until


async def quiet(engine: Engine) -> None:
    for worker in engine.workers:
        await worker.quiet()
        await worker.runtime.settle()


async def running(engine: Engine, thread: str = "t") -> list[Step]:
    return [step for step in await engine.steps(thread) if step.state == "running"]


async def test_a_model_step_whose_lease_ran_out_starts_again_from_an_empty_step(engine: Engine) -> None:
    gate = await streaming(engine, text(["dead ", "worker"]), at=2)
    engine.turns.append("living")
    version = (await engine.thread()).version
    await engine.lapse()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "living"
    types = [one["type"] for one in await chunks_of(engine, version)]
    assert types.count("start") == 1
    assert types.count("reset-step") == 1
    gate.set()
    await quiet(engine)
    assert (await engine.state())["messages"] == state["messages"]
    [step] = await engine.steps()
    assert (step.attempt, step.tries) == (3, 1)


async def test_a_step_that_lost_its_worker_too_often_fails_its_run(engine: Engine) -> None:
    gates = [await streaming(engine, text(["one", "two"]), at=2)]
    for _ in range(2):
        gates.append(asyncio.Event())
        engine.turns.append(Turn(chunks=text(["one", "two"]), gate=gates[-1], gate_at=2))
        before = len(engine.model.requests)
        await engine.lapse()
        await wait_until(lambda before=before: len(engine.model.requests) > before)
    await engine.lapse()
    state = await engine.idle()
    assert state["runs"][0]["status"] == "failed"
    assert state["runs"][0]["error"]["code"] == "interrupted"
    assert state["error"]["code"] == "interrupted"
    for gate in gates:
        gate.set()
    await quiet(engine)


async def test_a_tool_that_may_run_once_ends_as_interrupted_and_is_not_run_again(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "hold", {"name": "a"}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold"))
    await engine.lapse()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-error"
    assert "unknown" in calls_of(state["messages"][1])["c1"]["errorText"]
    engine.stage.gate("a").set()
    await quiet(engine)
    assert engine.stage.count("hold") == 1
    assert (await engine.state())["messages"] == state["messages"]


async def test_a_tool_that_may_run_again_gets_the_same_idempotency_key(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "hold_again", {"name": "a"}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold_again"))
    await engine.lapse()
    await wait_until(lambda: engine.stage.count("hold_again") == 2)
    engine.stage.gate("a").set()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "a 2"
    assert len({key for name, key in engine.stage.calls if name == "key"}) == 1
    await quiet(engine)


async def test_one_lapsed_lease_leaves_the_steps_beside_it_alone(engine: Engine) -> None:
    engine.turns.append([*tool_call("c1", "hold", {"name": "a"}), *tool_call("c2", "work", {"name": "b"})])
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold") and engine.stage.count("work"))
    await engine.execute("UPDATE step SET lease_expires_at = 1 WHERE tool_call_id = 'c1'")
    await engine.sweep()
    log = await engine.runtime.log.read_after((await engine.thread()).version, sequence=0)
    assert log.state == "live"
    [other] = await running(engine)
    fenced = await fence(
        engine.runtime, version=other.version, epoch=log.epoch, which=lambda step: step.step_id == "none"
    )
    assert fenced.steps == {}
    meta = await engine.runtime.log.redis.hget(f"pai:{{{other.version}}}:meta", f"s:{other.number}")
    assert meta is None or meta.startswith(b"1:")
    engine.stage.gate("b").set()
    state = await engine.idle()
    parts = calls_of(state["messages"][1])
    assert (parts["c1"]["state"], parts["c2"]["state"]) == ("output-error", "output-available")
    engine.stage.gate("a").set()
    await quiet(engine)


async def test_a_zombie_changes_nothing_in_sql(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "hold_again", {"name": "a"}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold_again"))
    [old] = await running(engine)
    await engine.lapse()
    await wait_until(lambda: engine.stage.count("hold_again") == 2)
    before = (await engine.thread()).revision
    zombie = engine.workers[0].runtime
    output = [{"type": "tool-output-available", "toolCallId": "c1", "output": "zombie"}]
    with pytest.raises(StepLost):
        await commit_tool(zombie, old, output, failed=False, worker=None)
    with pytest.raises(StepLost):
        await write_tool(zombie, old, output, ordinal=0)
    assert await claim(zombie, old.step_id, worker="zombie") is None
    assert (await engine.thread()).revision == before
    engine.stage.gate("a").set()
    await engine.idle()


async def test_a_checkpoint_that_meets_a_take_over_changes_nothing(engine: Engine) -> None:
    """The checkpoint waits for the take-over's transaction and then looks again at the step."""
    await streaming(engine, text(["one", "two"]), at=2)
    [step] = await running(engine)
    fold = Fold({"id": step.message_id, "role": "assistant", "metadata": {"pai": {}}, "parts": []})
    fold.apply({"type": "text-start", "id": "x"})
    async with engine.runtime.store.write() as connection:
        await lock_by_version(connection, version=step.version)
        from sqlalchemy import text as sql

        await connection.execute(sql("UPDATE step SET attempt = attempt + 1"))
        await connection.execute(sql("UPDATE message SET stored_sequence = stored_sequence"))
        zombie = asyncio.create_task(checkpoint(engine.workers[0].runtime, step, fold, sequence=5))
        await is_blocked(engine, zombie)
    with pytest.raises(StepLost):
        await zombie
    await engine.execute("UPDATE step SET attempt = attempt - 1")


async def is_blocked(engine: Engine, task: "asyncio.Task[Any]") -> None:
    """Returns when the task waits for a lock (PostgreSQL tells), or has had every chance to run into it."""
    if engine.runtime.store.dialect == "sqlite":
        for _ in range(20):
            await asyncio.sleep(0)
        return

    async def waits() -> bool:
        from sqlalchemy import text as sql

        async with engine.runtime.store.read() as connection:
            query = sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            return bool((await connection.execute(query)).scalar_one()) or task.done()

    await wait_until(waits)


async def test_of_two_sweeps_that_find_the_same_step_one_takes_it(engine: Engine) -> None:
    await streaming(engine, text(["one", "two"]), at=2)
    await engine.execute("UPDATE step SET lease_expires_at = 1 WHERE state = 'running'")
    await asyncio.gather(engine.sweep(0), engine.sweep(1))
    await engine.idle()
    [step] = await engine.steps()
    assert (step.attempt, step.tries) == (3, 1)


async def test_a_sweep_and_a_stop_at_once_leave_a_stopped_run(engine: Engine) -> None:
    gates: list[asyncio.Event] = []
    for name in ("a", "b", "c", "d"):
        engine.turns.clear()
        gates += [await streaming(engine, text(["one", "two"]), at=2, thread=name), asyncio.Event()]
        engine.turns.append(Turn(chunks=text(["again"]), gate=gates[-1]))
        await engine.execute("UPDATE step SET lease_expires_at = 1 WHERE state = 'running'")
        await asyncio.gather(engine.sweep(), engine.stop(name))
        assert (await engine.state(name))["runs"][0]["status"] == "cancelled"
    # A signal that came before the step was begun is lost, and the next renewal of its lease would tell.
    for gate in gates:
        gate.set()
    await quiet(engine)
    for name in ("a", "b", "c", "d"):
        assert (await engine.state(name))["runs"][0]["status"] == "cancelled"


async def test_a_renewed_lease_is_not_taken(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two"]), at=2)
    await engine.sweep()
    gate.set()
    await engine.idle()
    [step] = await engine.steps()
    assert step.attempt == 1


async def test_a_step_that_nobody_heard_of_is_dispatched_again_by_one_sweep(engine: Engine) -> None:
    engine.post.holds = True
    await engine.send()
    await engine.runtime.settle()
    assert len(engine.post.held) == 1
    engine.post.held.clear()
    await engine.execute("UPDATE step SET dispatch_at = 1")
    await asyncio.gather(engine.sweep(0), engine.sweep(1), engine.sweep(0), engine.sweep(1))
    assert len(engine.post.held) == 1
    engine.post.release()
    await engine.idle()


async def test_a_duplicate_delivery_finds_nothing_to_claim(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two"]), at=2)
    [step] = await running(engine)
    for worker in engine.workers:
        worker.take(step.step_id)
        worker.take("step_unknown")
    gate.set()
    await engine.idle()
    assert len(engine.model.requests) == 1


async def test_a_drain_hands_a_model_step_to_another_worker_without_spending_a_try(engine: Engine) -> None:
    engine.post.workers = engine.workers[:1]
    await streaming(engine, text(["one", "two"]), at=2)
    engine.post.workers = engine.workers[1:]
    engine.turns.append("from the other")
    await engine.workers[0].runner.drain(timedelta(milliseconds=1))
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "from the other"
    [step] = await engine.steps()
    assert (step.tries, step.state) == (0, "done")


async def test_a_drain_interrupts_tools_that_may_not_run_twice_and_hands_over_the_others(engine: Engine) -> None:
    engine.post.workers = engine.workers[:1]
    engine.turns.append([*tool_call("c1", "hold", {"name": "a"}), *tool_call("c2", "hold_again", {"name": "b"})])
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold") and engine.stage.count("hold_again"))
    engine.post.workers = engine.workers[1:]
    await engine.workers[0].runner.drain(timedelta(milliseconds=1))
    await wait_until(lambda: engine.stage.count("hold_again") == 2)
    engine.stage.gate("b").set()
    state = await engine.idle()
    parts = calls_of(state["messages"][1])
    assert (parts["c1"]["state"], parts["c2"]["output"]) == ("output-error", "b 1")


async def test_a_drain_waits_for_a_step_that_ends_in_time_and_starts_nothing_more(engine: Engine) -> None:
    engine.post.workers = engine.workers[:1]
    gate = await streaming(engine, tool_call("c1", "echo", {"words": "x"}), at=2)
    engine.post.workers = engine.workers[1:]
    draining = asyncio.create_task(engine.workers[0].runner.drain(timedelta(seconds=10)))
    await wait_until(lambda: engine.workers[0].runner.draining)
    gate.set()
    await draining
    await engine.make_due()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "x"
    assert engine.stage.count("echo") == 1
    assert engine.workers[0].runner.executed == 1


async def test_what_was_created_for_a_worker_that_is_about_to_end_is_given_back_unspent(engine: Engine) -> None:
    engine.post.workers = engine.workers[:1]
    runner = engine.workers[0].runner
    announce = runner.runtime.announce

    def draining(publication: Any) -> Any:
        runner.draining = runner.draining or bool(publication.finished)
        return announce(publication)

    runner.runtime.announce = draining  # type: ignore[method-assign]
    engine.turns.append(tool_call("c1", "hold", {"name": "a"}))
    engine.stage.gate("a").set()
    await engine.send()
    await wait_until(lambda: runner.draining)
    await engine.workers[0].quiet()
    engine.post.workers = engine.workers[1:]
    await engine.make_due()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "a"


async def test_a_worker_that_dies_between_commit_and_publication_loses_nothing(engine: Engine) -> None:
    """The transaction is in SQL and nobody was told: neither watchers nor workers."""
    for worker in engine.workers:
        worker.runtime.announce = lambda publication: asyncio.get_running_loop().create_future()  # type: ignore
    await engine.send()

    async def committed() -> bool:
        return (await engine.thread()).status == "idle"

    await wait_until(committed)
    state = await engine.state()
    assert text_of(state["messages"][1]) == "ok"
    assert state["revision"] == 2
    await engine.stop()
    await engine.runtime.settle()
    log = await engine.runtime.log.read_after((await engine.thread()).version, sequence=0)
    assert log.revision == 3
    assert [entry.body for entry in log.entries if entry.kind == "reset"] == [b"order"]


async def test_a_worker_that_dies_with_a_raised_fence_leaves_the_step_to_its_lease(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two"]), at=2)
    [step] = await running(engine)
    await fence(engine.runtime, version=step.version, epoch=1, which=lambda step: True)
    gate.set()
    await quiet(engine)
    [step] = await running(engine)
    assert step.attempt == 1
    await engine.lapse()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "ok"


async def test_a_step_that_was_claimed_and_never_begun_is_run_by_another(engine: Engine) -> None:
    engine.post.holds = True
    await engine.send()
    await engine.runtime.settle()
    [step_id] = engine.post.held
    engine.post.held.clear()
    assert await claim(engine.workers[0].runtime, step_id, worker="dead") is not None
    engine.post.holds = False
    await engine.lapse()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "ok"
    await check_rules(engine)


async def test_a_released_step_is_published_by_its_new_holder_only(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two", "three"]), at=3)
    other = asyncio.Event()
    engine.turns.append(Turn(chunks=text(["four", "five"]), gate=other, gate_at=2))
    await engine.lapse()
    await published(engine, 7)
    gate.set()
    other.set()
    state = await engine.idle()
    await quiet(engine)
    assert text_of(state["messages"][1]) == "fourfive"
