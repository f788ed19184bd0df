"""Threads that tools start: once, followed without holding anything, and stopped and deleted with their parent."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from engine_parts import calls_of, said
from family import Family, delegates, output_of

from pai.engine import api
from pai.engine.delivery import deliver_due
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import NotFound
from pai.protocol.identity import Identity
from pai.protocol.requests import ActionRequest
from pai_workers import effects
from support.waiting import wait_until


async def test_a_tool_follows_another_agent_and_gets_what_it_came_to(family: Family) -> None:
    delegates(family.engine)
    await family.engine.run()
    assert await output_of(family) == {"status": "completed", "text": "done: dig"}
    assert [name for name, _ in family.engine.stage.calls] == ["delegate", "started"] * 2 + ["result"]
    (child,) = await family.children()
    assert (child.parent_thread_id, child.category, child.hidden, child.owner) == ("t", "work", True, "default/ann")
    assert await family.rows("flag") == 0


async def test_a_call_that_follows_holds_nothing_and_cannot_be_answered(family: Family) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    delegates(family.engine)
    await family.engine.send()
    state = await family.engine.has_status("waiting")
    assert state["activeRunId"] is None
    assert state["capabilities"] == {"canStop": True, "canRespondToActions": False}
    assert state["runs"][0]["status"] == "waiting"
    part = calls_of(state["messages"][1])["c1"]
    assert (part["state"], part.get("suspensions")) == ("input-available", None)
    step = next(step for step in await family.engine.steps() if step.kind == "tool")
    assert (step.state, step.lease_owner, step.lease_expires_at) == ("suspended", None, None)
    ref = {
        "kind": "tool",
        "threadId": "t",
        "toolName": "delegate",
        "messageId": state["messages"][1]["id"],
        "toolCallId": "c1",
        "runId": state["runs"][0]["runId"],
        "actionId": "c1",
        "name": "delegate.output",
    }
    with pytest.raises(NotFound):
        await family.engine.submit(ref, "mine")
    gate.set()
    assert await output_of(family) == {"status": "completed", "text": "so far"}


async def test_a_child_that_ends_before_the_call_waits_is_not_missed(family: Family) -> None:
    family.engine.turns.append(tool_call("c1", "both", {"first": "one", "second": "two"}))
    await family.engine.run()
    assert await output_of(family) == "done: two done: one done: one"
    assert len(await family.children()) == 2
    assert await family.rows("flag") == 0


async def test_a_call_may_follow_children_and_ask_people_at_once(family: Family) -> None:
    gate = asyncio.Event()
    family.turns += [Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2) for _ in range(2)]
    family.engine.turns.append(tool_call("c1", "together", {"first": "one", "second": "two"}))
    await family.engine.send()
    await family.engine.has_status("waiting")
    gate.set()
    (ref,) = await family.engine.actions()
    await family.engine.submit(ref, "yes")
    assert await output_of(family) == "so far yes so far"
    assert await family.rows("flag") == 0


@pytest.mark.parametrize("how", ["thread", "run"])
async def test_a_stopped_parent_stops_its_children(family: Family, how: str) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    delegates(family.engine)
    reply = await family.engine.send()
    await family.engine.has_status("waiting")
    await wait_until(lambda: family.model.requests)
    if how == "thread":
        await family.engine.stop()
    else:
        await family.engine.stop_run(reply.result.run.run_id)
    await wait_until(lambda: family.children(busy=False))
    (child,) = await family.children()
    state = await api.get_state(family.engine.runtime, family.caller(), child.thread_id)
    assert state is not None
    assert [run.status for run in state.runs] == ["cancelled"]
    await family.settle()
    await deliver_due(family.engine.workers[0].runtime)
    await family.engine.execute("UPDATE flag SET due_at = 1")
    await deliver_due(family.engine.workers[0].runtime)
    assert await family.rows("flag") == 0
    gate.set()


async def test_stopping_a_run_leaves_children_that_others_started(family: Family) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    family.engine.turns.append(tool_call("c1", "leave", {"work": "first"}))
    await family.engine.run()
    await wait_until(lambda: family.model.requests)
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    family.engine.turns.append(tool_call("c2", "delegate", {"work": "second"}))
    second = await family.engine.send("again")
    await family.engine.has_status("waiting")
    await wait_until(lambda: len(family.model.requests) == 2)
    await family.engine.stop_run(second.result.run.run_id)
    await wait_until(lambda: family.children(busy=False))
    assert len(await family.children(busy=True)) == 1
    await family.engine.stop()
    await wait_until(lambda: _none_busy(family))
    gate.set()


async def _none_busy(family: Family) -> bool:
    return not await family.children(busy=True)


async def test_a_deleted_parent_takes_hidden_children_and_leaves_the_others_stopped(family: Family) -> None:
    gate = asyncio.Event()
    for hidden in (True, False):
        family.engine.stage.values["hidden"] = hidden
        family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
        family.engine.turns.append(tool_call("c1", "leave", {"work": "w"}))
        await family.engine.run()
    await wait_until(lambda: len(family.model.requests) == 2)
    await api.delete(family.engine.runtime, family.engine.caller(), "t")

    async def only_one() -> bool:
        children = await family.children()
        return len(children) == 1 and children[0].status == "idle" and children[0].parent_thread_id is None

    await wait_until(only_one)
    await family.settle()
    assert await family.rows("flag") == 0
    gate.set()


async def test_a_deleted_child_ends_the_wait(family: Family) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    delegates(family.engine)
    await family.engine.send()
    await family.engine.has_status("waiting")
    (child,) = await family.children()
    await api.delete(family.engine.runtime, family.caller(), child.thread_id)
    assert await output_of(family) == {"status": "deleted", "text": ""}
    gate.set()


async def test_a_failed_child_is_a_result(family: Family) -> None:
    family.turns.append(Turn(chunks=text(["half"]), error=RuntimeError("broken")))
    delegates(family.engine)
    await family.engine.run()
    output = await output_of(family)
    assert output["status"] == "failed"


async def test_steering_supersedes_a_wait_and_stops_the_child(family: Family) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    delegates(family.engine)
    await family.engine.send()
    await family.engine.has_status("waiting")
    await family.engine.send("rather this", queue={"mode": "steer"})
    state = await family.engine.idle()
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-error"
    await wait_until(lambda: _none_busy(family))
    gate.set()


async def test_a_wait_that_takes_too_long_ends_the_call_and_the_child(family: Family) -> None:
    gate = asyncio.Event()
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    family.engine.stage.values["timeout"] = timedelta(hours=1)
    delegates(family.engine)
    await family.engine.send()
    await family.engine.has_status("waiting")
    await family.engine.make_due()
    state = await family.engine.idle()
    part = calls_of(state["messages"][1])["c1"]
    assert part["state"] == "output-error"
    await wait_until(lambda: _none_busy(family))
    gate.set()


async def test_a_child_may_wait_for_a_person(family: Family) -> None:
    family.turns.append(tool_call("c9", "pick", {}))
    family.engine.stage.values["hidden"] = False
    delegates(family.engine)
    await family.engine.send()
    (child,) = await wait_until(lambda: _waiting(family))
    state = await api.get_state(family.engine.runtime, family.caller(), child.thread_id)
    assert state is not None
    assert state.capabilities.can_respond_to_actions
    assert (await family.engine.state())["thread"]["status"] == "waiting"
    row = await family.engine.thread(child.thread_id)
    request = ActionRequest.read({"ref": row.actions[0], "response": {"type": "submit", "payload": {}}})
    await api.respond(family.engine.runtime, family.caller(), child.thread_id, request)
    assert (await output_of(family))["text"] == "done: dig"


async def _waiting(family: Family) -> list[Any]:
    return [child for child in await family.children() if child.status == "waiting"]


async def test_a_circle_of_agents_ends_with_an_error_that_the_model_reads(family: Family) -> None:
    limit = family.engine.settings.max_thread_depth
    family.turns += [tool_call(f"h{depth}", "again", {"work": "on"}) for depth in range(limit)]
    delegates(family.engine)
    await family.engine.run()
    assert (await output_of(family))["status"] == "completed"
    children = await family.children()
    assert len(children) == limit
    errors = 0
    for child in children:
        state = await api.get_state(family.engine.runtime, family.caller(), child.thread_id)
        assert state is not None
        parts = [part for message in state.messages for part in message["parts"] if "toolCallId" in part]
        errors += sum(part.get("state") == "output-error" for part in parts)
    assert errors == 1


async def test_what_a_child_is_given_is_cleaned(family: Family) -> None:
    family.engine.turns.append(tool_call("c1", "start_dirty", {}))
    await family.engine.run()
    clean = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert await output_of(family) == f"done: {clean}"
    (child,) = await family.children()
    assert child.title is not None
    assert (child.title.value, child.category, child.metadata) == (clean, clean, {"x": clean})


async def test_an_unknown_agent_fails_the_call_and_starts_nothing(family: Family) -> None:
    family.engine.turns.append(tool_call("c1", "leave", {"work": "w", "agent": "nobody"}))
    await family.engine.run()
    state = await family.engine.idle()
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-error"
    assert await family.children() == []


async def test_hidden_children_do_not_exist_for_their_owner(family: Family) -> None:
    delegates(family.engine)
    await family.engine.run()
    (child,) = await family.children()
    owner = replace(family.caller(), identity=Identity(subject="ann"))
    runtime = family.engine.runtime
    assert await api.get_state(runtime, owner, child.thread_id) is None
    assert await api.locate(runtime, owner, child.thread_id) is None
    assert (await api.list_threads(runtime, owner)).items == []
    with pytest.raises(NotFound):
        await api.get_run(runtime, owner, child.thread_id, "run_1")
    with pytest.raises(NotFound):
        await api.send(runtime, owner, child.thread_id, said("let me in"))
    await api.delete(runtime, owner, child.thread_id)
    assert len(await family.children()) == 1


async def test_what_a_process_did_not_deliver_the_sweep_does(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    for runtime in family.engine.processes:
        monkeypatch.setattr(runtime, "deliver", lambda flags: None)
    delegates(family.engine)
    await family.engine.send()
    await family.engine.has_status("waiting")
    await wait_until(lambda: family.rows("flag"))
    assert (await family.engine.state())["thread"]["status"] == "waiting"
    await family.engine.execute("UPDATE flag SET due_at = 1")
    await family.engine.sweep()
    assert await output_of(family) == {"status": "completed", "text": "done: dig"}
    assert await family.rows("flag") == 0


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_while_it_starts_a_child_starts_it_once(
    family: Family, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    gate, frozen, real = asyncio.Event(), asyncio.Event(), effects.start_child

    async def freezes(*args: Any, **more: Any) -> str:
        monkeypatch.setattr(effects, "start_child", real)
        if when == "after":
            await real(*args, **more)
        frozen.set()
        await asyncio.shield(gate.wait())
        return await real(*args, **more)

    monkeypatch.setattr(effects, "start_child", freezes)
    delegates(family.engine)
    await family.engine.send()
    await frozen.wait()
    await family.engine.lapse()
    assert await output_of(family) == {"status": "completed", "text": "done: dig"}
    gate.set()
    for worker in family.engine.workers:
        await worker.quiet()
    assert len(await family.children()) == 1
    assert len(family.model.requests) == 1


@pytest.mark.parametrize("status", ["deleted", "completed"])
async def test_a_child_that_was_deleted_while_its_call_was_lost_is_not_started_again(
    family: Family, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    gate, gate2, frozen, real = asyncio.Event(), asyncio.Event(), asyncio.Event(), effects.start_child

    async def freezes(*args: Any, **more: Any) -> str:
        monkeypatch.setattr(effects, "start_child", real)
        await real(*args, **more)
        frozen.set()
        await asyncio.shield(gate.wait())
        return await real(*args, **more)

    monkeypatch.setattr(effects, "start_child", freezes)
    family.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate2, gate_at=2))
    delegates(family.engine)
    await family.engine.send()
    await frozen.wait()
    await wait_until(lambda: family.model.requests)
    if status == "completed":
        gate2.set()
        await wait_until(lambda: _none_busy(family))
    (child,) = await family.children()
    await api.delete(family.engine.runtime, family.caller(), child.thread_id)
    await family.engine.lapse()
    assert (await output_of(family))["status"] == status
    gate.set()
    gate2.set()
    for worker in family.engine.workers:
        await worker.quiet()
    assert await family.children() == []
    assert len(family.model.requests) == 1


async def test_a_stop_while_a_child_is_being_created_reaches_it_or_keeps_it_from_beginning(family: Family) -> None:
    """At random moments, on both sides of the child's creation."""
    pause = asyncio.Event()

    async def quiet() -> bool:
        # A child whose creation was under way is found by the sweep, a step that was being claimed by its renewal.
        await family.deliver_late()
        await family.engine.renew()
        return not any(worker.tasks for worker in family.engine.workers)

    for round_ in range(25):
        family.turns.append(Turn(chunks=text(["so ", "far"]), gate=pause, gate_at=2))
        family.engine.turns.append(tool_call("c1", "delegate", {"work": "w"}))
        name = f"t{round_}"
        await family.engine.send(thread=name)
        await asyncio.sleep(random.uniform(0, 0.03))
        await family.engine.stop(name)
        await wait_until(quiet)
        family.turns.clear()
        family.engine.turns.clear()
    await family.settle()
    await family.deliver_late()
    await wait_until(lambda: _none_busy(family))
    pause.set()
