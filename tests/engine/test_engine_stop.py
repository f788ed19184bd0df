"""Stop: the thread is free when the call returns, in whatever phase the run was; what was streamed is kept."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, calls_of, of_type, text_of
from engine_rules import check_rules

from pai.engine import api, stop, takeover
from pai.engine.commit import commit_tool
from pai.engine.transaction import StepLost
from pai.log.batches import LiveBatch, PublishStatus
from pai.log.entries import EntryKind, chunk
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import NotFound, RunNotActive
from pai.protocol.json import dumps, loads
from pai.protocol.usage import UsageSummary
from support.waiting import wait_until

USAGE = UsageSummary(input_tokens=10, output_tokens=5, total_tokens=15)


async def streaming(engine: Engine, chunks: list[dict[str, Any]], *, at: int, thread: str = "t") -> asyncio.Event:
    """A run that has published `at` chunks of an answer and waits for the gate."""
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=chunks, gate=gate, gate_at=at, usage=USAGE))
    await engine.send(thread=thread)
    await published(engine, at + 2 if at else 0, thread=thread)
    return gate


async def published(engine: Engine, count: int, *, thread: str = "t") -> None:
    """Waits until the log holds `count` live chunks."""
    version = (await engine.thread(thread)).version

    async def there() -> bool:
        log = await engine.runtime.log.read_after(version, sequence=0)
        live = [entry for entry in log.entries if entry.kind is EntryKind.CHUNK and entry.revision is None]
        return len(live) >= count and bool(engine.model.requests)

    await wait_until(there)


async def chunks_of(engine: Engine, version: str) -> list[dict[str, Any]]:
    log = await engine.runtime.log.read_after(version, sequence=0)
    return [loads(entry.body) for entry in log.entries if entry.kind is EntryKind.CHUNK]


async def is_stopped(engine: Engine, *, messages: int) -> dict[str, Any]:
    """What is true after every stop, at once."""
    state = await engine.state()
    assert state["thread"]["status"] == "idle"
    assert state["activeRunId"] is None
    assert state["runs"][-1]["status"] == "cancelled"
    assert len(state["messages"]) == messages
    assert state["capabilities"] == {"canStop": False, "canRespondToActions": False}
    assert [step.state for step in await engine.steps() if step.state in ("pending", "running", "suspended")] == []
    return state


async def test_a_run_that_nobody_claimed_leaves_no_answer(engine: Engine) -> None:
    engine.post.holds = True
    await engine.send()
    await engine.stop()
    state = await is_stopped(engine, messages=1)
    assert "reason" not in state["runs"][0]
    engine.post.release()
    for worker in engine.workers:
        await worker.quiet()
    assert not engine.model.requests


async def test_an_answer_without_a_chunk_is_removed(engine: Engine) -> None:
    gate = await streaming(engine, text("one"), at=0)
    await engine.stop(reason="enough")
    state = await is_stopped(engine, messages=1)
    assert state["runs"][0]["reason"] == "enough"
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    await is_stopped(engine, messages=1)


async def test_an_answer_whose_text_is_still_empty_is_removed(engine: Engine) -> None:
    await streaming(engine, text(["one"]), at=1)
    await engine.stop()
    await is_stopped(engine, messages=1)


async def test_partial_text_is_kept_and_the_message_ends_with_abort(engine: Engine) -> None:
    await streaming(engine, text(["one ", "two ", "three"]), at=3)
    version = (await engine.thread()).version
    await engine.stop(reason="enough")
    state = await is_stopped(engine, messages=2)
    answer = state["messages"][1]
    assert of_type(answer, "text")[0] == {"type": "text", "text": "one two ", "state": "done"}
    assert answer["metadata"]["pai"]["status"] == "committed"
    await engine.runtime.settle()
    assert [one["type"] for one in await chunks_of(engine, version)][-4:] == [
        "text-end",
        "message-metadata",
        "finish-step",
        "abort",
    ]
    assert (await chunks_of(engine, version))[-1]["reason"] == "enough"


async def test_partial_reasoning_is_kept(engine: Engine) -> None:
    await streaming(engine, [*reasoning(["hm ", "so"], id="r1"), *text("x")], at=2)
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    assert of_type(state["messages"][1], "reasoning")[0] == {
        "type": "reasoning",
        "id": "r1",
        "text": "hm ",
        "state": "done",
    }


@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_call_whose_input_still_streams_gets_an_error_and_what_arrived_as_input(
    engine: Engine, dynamic: bool
) -> None:
    call = tool_call(
        "c1", "unknown" if dynamic else "hold", {"name": "abc", "more": "x" * 30}, deltas=4, dynamic=dynamic
    )
    await streaming(engine, call, at=2)
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    part = calls_of(state["messages"][1])["c1"]
    assert part["state"] == "output-error"
    assert isinstance(part["input"], dict)
    error = of_type(state["messages"][1], "data-pai-tool-error")[0]["data"]
    assert error["code"] == "stopped"


async def test_a_running_tool_is_stopped_and_its_late_result_refused(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "hold", {"name": "a"}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold"))
    step = next(step for step in await engine.steps() if step.kind == "tool")
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-error"
    chunks = [{"type": "tool-output-available", "toolCallId": "c1", "output": "late"}]
    with pytest.raises(StepLost):
        await commit_tool(engine.workers[0].runtime, step, chunks, failed=False, worker=None)
    for worker in engine.workers:
        await worker.quiet()
    assert (await engine.state())["messages"] == state["messages"]


async def test_a_waiting_run_is_stopped_and_its_suspension_closed(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "publish", {"title": "a"}))
    await engine.send()
    [ref] = await engine.actions()
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    suspension = of_type(state["messages"][1], "data-pai-suspension")[0]["data"]
    assert (suspension["state"], suspension["reason"]) == ("cancelled", "stopped")
    from pai.protocol.errors import ActionNotPending

    with pytest.raises(ActionNotPending) as error:
        await engine.submit(ref, {"approved": True})
    assert error.value.state == "cancelled"


async def test_the_run_of_a_dead_worker_is_stopped_like_any_other(engine: Engine) -> None:
    await streaming(engine, text(["one ", "two"]), at=2)
    for worker in engine.workers:
        for _, task in worker.runner._tasks.values():
            task.cancel()
    await engine.execute("UPDATE step SET lease_expires_at = 1 WHERE state = 'running'")
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    assert text_of(state["messages"][1]) == "one "
    await engine.sweep()
    assert (await engine.state())["messages"] == state["messages"]


async def test_a_later_chunk_of_the_stopped_worker_is_refused(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    [step] = await engine.steps()
    await engine.stop()
    await engine.runtime.settle()
    late = LiveBatch(
        version=step.version,
        epoch=1,
        number=step.number,
        attempt=step.attempt,
        batch=99,
        entries=[
            chunk(step.run_id, step.message_id or "", dumps({"type": "text-delta", "id": "text-1", "delta": "x"}))
        ],
    )
    [result] = await engine.runtime.log.publish([late])
    assert result.status is PublishStatus.FENCED
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    assert text_of((await engine.state())["messages"][1]) == "one"


@pytest.mark.parametrize("opened", [False, True])
async def test_the_usage_of_the_aborted_call_is_added_once(engine: Engine, opened: bool) -> None:
    """Whether the worker hears of the stop by the signal, or finds itself fenced."""
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    if opened:
        gate.set()
    await engine.stop()
    gate.set()

    async def counted() -> bool:
        state = await engine.state()
        return bool(state["usage"].get("totalTokens") == 15)

    await wait_until(counted)
    for worker in engine.workers:
        await worker.quiet()
        await worker.runtime.settle()
    state = await engine.state()
    assert state["usage"]["totalTokens"] == state["runs"][0]["usage"]["totalTokens"] == 15


async def test_a_stop_that_races_the_commit_ends_in_one_of_two_states(engine: Engine) -> None:
    for round_ in range(15):
        name = f"t{round_}"
        gate = await streaming(engine, text(["one", "two"]), at=2, thread=name)
        run_id = (await engine.thread(name)).current_run_id
        gate.set()
        for _ in range(round_ % 5):
            await asyncio.sleep(0)
        await engine.stop(name)
        run = await api.get_run(engine.runtime, engine.caller(), name, run_id or "")
        state = await engine.state(name)
        assert state["thread"]["status"] == "idle"
        assert run.status in ("completed", "cancelled")
        assert run.status == "cancelled" or text_of(state["messages"][1]) == "onetwo"
        engine.turns.clear()


async def test_stop_says_which_queued_inputs_go_on(engine: Engine) -> None:
    for keep, users in (("none", ["first"]), ("steer", ["first", "s"]), ("all", ["first", "s", "q"])):
        gate = asyncio.Event()
        engine.turns.append(Turn(chunks=text(["one", "two"]), gate=gate, gate_at=2))
        await engine.send("first", thread=keep)
        await wait_until(lambda: not engine.turns)
        await engine.send("q", thread=keep, queue={"mode": "queue"})
        await engine.send("s", thread=keep, queue={"mode": "steer"})
        result = (await engine.stop(keep, continueWith=keep)).result
        dropped = [text_of(item.messages[0]) for item in result.cancelled or ()]
        assert sorted(users[1:] + dropped) == ["q", "s"]
        state = await engine.idle(keep)
        assert [text_of(m) for m in state["messages"] if m["role"] == "user"] == users
        statuses = sorted(run["status"] for run in state["runs"])
        assert statuses == sorted(["cancelled"] * (4 - len(users)) + ["completed"] * (len(users) - 1))
        for run in state["runs"]:
            if run["status"] == "cancelled" and "startedAt" not in run:
                assert "inputMessageIds" not in run


async def test_stopping_a_run_lets_the_queue_proceed(engine: Engine) -> None:
    await streaming(engine, text(["one", "two"]), at=2)
    queued = (await engine.send("next", queue={"mode": "queue"})).result
    run_id = (await engine.state())["activeRunId"]
    with pytest.raises(RunNotActive):
        await engine.stop_run(queued.run.run_id)
    with pytest.raises(NotFound):
        await engine.stop_run("none")
    await engine.stop_run(run_id)
    state = await engine.idle()
    assert {run["runId"]: run["status"] for run in state["runs"]} == {
        run_id: "cancelled",
        queued.run.run_id: "completed",
    }
    with pytest.raises(RunNotActive):
        await engine.stop_run(run_id)


async def test_a_stop_that_is_refused_does_not_disturb_the_run_that_goes_on(engine: Engine) -> None:
    await engine.run("first")
    finished = (await engine.state())["runs"][0]["runId"]
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    with pytest.raises(RunNotActive):
        await engine.stop_run(finished)
    gate.set()
    await engine.idle()
    assert [step.attempt for step in await engine.steps()] == [1, 1]


async def test_stopping_an_idle_thread_is_no_error_and_an_unknown_one_is(engine: Engine) -> None:
    await engine.run()
    result = (await engine.stop()).result
    assert result.run is None
    with pytest.raises(NotFound):
        await engine.stop("unknown")


async def test_two_stops_at_once_cancel_once(engine: Engine) -> None:
    await streaming(engine, text(["one", "two"]), at=2)
    replies = await asyncio.gather(engine.stop(), engine.stop(), engine.stop(key="k"), engine.stop(key="k"))
    assert sum(reply.result.run is not None for reply in replies if not reply.replayed) == 1
    await is_stopped(engine, messages=2)


async def test_a_thread_is_stopped_while_redis_is_down(breakable: Engine, own_redis: Any) -> None:
    engine = breakable
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    own_redis.stop()
    await engine.stop()
    state = await engine.state()
    assert state["thread"]["status"] == "idle"
    assert state["runs"][0]["status"] == "cancelled"
    own_redis.start()
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    assert (await engine.state())["messages"] == state["messages"]
    await engine.run("again")
    assert text_of((await engine.state())["messages"][-1]) == "ok"
    await check_rules(engine)


async def test_a_run_whose_steps_change_too_fast_is_stopped_while_nothing_can_change(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "TRIES", 0)
    gate = await streaming(engine, text(["one ", "two"]), at=2)
    [step] = await engine.steps()
    await engine.stop()
    state = await is_stopped(engine, messages=2)
    assert text_of(state["messages"][1]) == "one "
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    assert text_of((await engine.state())["messages"][1]) == "one "
    assert (await engine.steps())[0].attempt == step.attempt + 1


@pytest.mark.parametrize("any_database_url", ["postgresql"], indirect=True)
async def test_a_step_that_is_claimed_while_its_run_is_stopped_is_abandoned_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims do not wait for the thread: this one comes between what the stop reads and what it writes.

    On SQLite there is no such moment: whoever writes excludes all others.
    """
    gate, worker = asyncio.Event(), engine.workers[0]
    engine.turns.append(Turn(chunks=text(["one", "two"]), gate=gate, gate_at=1))
    engine.post.holds = True
    await engine.send()
    await wait_until(lambda: engine.post.held)
    real = stop.cancel_run

    async def meets_a_claim(*args: Any, **more: Any) -> None:
        worker.take(engine.post.held[0])
        await wait_until(lambda: engine.model.requests)
        await real(*args, **more)

    monkeypatch.setattr(stop, "cancel_run", meets_a_claim)
    await engine.stop()
    await worker.quiet()
    [step] = await engine.steps()
    assert (step.state, step.lease_owner) == ("cancelled", None)
    assert not gate.is_set()
    await is_stopped(engine, messages=1)


async def test_a_tool_that_cleans_up_is_not_disturbed_in_that(engine: Engine) -> None:
    """Each renewal finds again that the step is not its worker's any more."""
    engine.turns.append(tool_call("c1", "tidy", {}))
    await engine.send()
    await wait_until(lambda: engine.stage.calls == [("tidy", "begun")])
    await engine.stop()
    await wait_until(lambda: engine.stage.calls[-1] == ("tidy", "cleaning"))
    for _ in range(3):
        await engine.renew()
        await asyncio.sleep(0)
    engine.stage.gate("cleaning").set()
    await wait_until(lambda: engine.stage.calls[-1] == ("tidy", "clean"))
