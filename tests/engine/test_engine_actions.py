"""Suspensions, client and external tools, tool data: what a run waits for, and who may answer what."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, calls_of, of_type, text_of
from engine_rules import check_rules

from pai.engine import api
from pai.models.chunks import tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import (
    ActionNotPending,
    CallSettled,
    Forbidden,
    IdempotencyConflict,
    NotFound,
    PaiError,
    ValidationFailed,
)
from pai.protocol.requests import ToolDataRequest
from support.waiting import wait_until

YES = {"approved": True}


async def waits(engine: Engine, name: str = "publish", input: dict[str, Any] | None = None) -> dict[str, Any]:
    """A run that waits in one call; -> the reference of its action."""
    engine.turns.append(tool_call("c1", name, {"title": "a"} if input is None else input))
    await engine.send()
    [ref] = await engine.actions()
    return ref


async def write(engine: Engine, ref: dict[str, Any], name: str, value: Any, **more: Any) -> Any:
    names = {"messageId": ref["messageId"], "toolCallId": ref["toolCallId"]}
    request = ToolDataRequest.read({**names, "name": name, "value": value, **more})
    return await api.write_tool_data(engine.runtime, engine.caller(), "t", request)


async def test_a_suspended_call_waits_holding_nothing_and_goes_on_with_the_answer(engine: Engine) -> None:
    ref = await waits(engine)
    assert ref["name"] == "publish.approval"
    state = await engine.state()
    assert state["thread"]["status"] == "waiting"
    assert state["activeRunId"] is None
    assert state["capabilities"] == {"canStop": True, "canRespondToActions": True}
    assert state["runs"][0]["status"] == "waiting"
    [suspended] = [step for step in await engine.steps() if step.state == "suspended"]
    assert (suspended.lease_owner, suspended.lease_expires_at) == (None, None)
    for worker in engine.workers:
        await worker.quiet()
    engine.turns.append("published")
    result = (await engine.submit(ref, YES)).result
    assert result.run.status == "running"
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "A True"
    suspension = of_type(state["messages"][1], "data-pai-suspension")[0]["data"]
    assert (suspension["state"], suspension["resume"], suspension["input"]) == ("resumed", YES, {"title": "a"})
    assert text_of(state["messages"][2]) == "published"
    assert engine.stage.calls == [("prepare", "a"), ("publish", True)]


async def test_an_answer_that_does_not_fit_leaves_everything_as_it_was(engine: Engine) -> None:
    ref = await waits(engine)
    before = await engine.settled()
    for payload in (None, {}, {"approved": "maybe"}, "x" * 3000):
        with pytest.raises(ValidationFailed):
            await engine.submit(ref, payload, responseId="r1")
    assert await engine.state() == before
    await engine.submit(ref, YES, responseId="r1")
    await engine.idle()


@pytest.mark.parametrize(
    "altered",
    [
        {"threadId": "other"},
        {"toolName": "ask"},
        {"suspendName": "second"},
        {"messageId": "other"},
        {"toolCallId": "other"},
        {"runId": "other"},
        {"actionId": "other"},
        {"name": "publish.second"},
        {"suspendName": None},
    ],
)
async def test_an_action_is_found_only_by_its_exact_reference(engine: Engine, altered: dict[str, Any]) -> None:
    ref = await waits(engine)
    await engine.run(thread="other")
    wrong = {key: value for key, value in {**ref, **altered}.items() if value is not None}
    with pytest.raises(NotFound):
        await engine.submit(wrong, YES)
    assert await engine.actions() == [ref]


async def test_the_first_answer_wins(engine: Engine) -> None:
    ref = await waits(engine)
    answers = await asyncio.gather(
        engine.submit(ref, YES, responseId="r1"),
        engine.submit(ref, {"approved": False}, responseId="r2", runtime=engine.runtimes[1]),
        engine.respond(ref, {"type": "cancel"}, responseId="r3"),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(refused) == 2
    assert all(isinstance(error, ActionNotPending) for error in refused)
    await engine.idle()
    for response_id in ("r4", None):
        more = {} if response_id is None else {"responseId": response_id}
        with pytest.raises(ActionNotPending) as error:
            await engine.submit(ref, YES, **more)
        assert error.value.state in ("resumed", "cancelled")


async def test_the_same_response_id_gets_the_first_answer_again_and_changes_nothing(engine: Engine) -> None:
    ref = await waits(engine)
    first = await engine.submit(ref, YES, responseId="r1")
    await engine.idle()
    before = await engine.thread()
    again = await engine.submit(ref, YES, responseId="r1")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.result == first.result
    assert (await engine.thread()).revision == before.revision
    with pytest.raises(IdempotencyConflict):
        await engine.submit(ref, {"approved": False}, responseId="r1")


async def test_an_idempotency_key_counts_for_answers_too(engine: Engine) -> None:
    ref = await waits(engine)
    first = await engine.submit(ref, YES, key="k")
    again = await engine.submit(ref, YES, key="k")
    assert (again.replayed, again.result) == (True, first.result)
    with pytest.raises(IdempotencyConflict):
        await engine.submit(ref, {"approved": False}, key="k")
    await engine.idle()


@pytest.mark.parametrize(
    ("response", "state", "code", "words"),
    [
        ({"type": "cancel"}, "cancelled", "cancelled", "The request was dismissed without an answer."),
        ({"type": "cancel", "reason": "no time"}, "cancelled", "cancelled", "no time"),
        ({"type": "fail", "error": {"message": "broken"}}, "failed", "failed", "broken"),
        ({"type": "fail", "error": {"message": "broken", "code": "X", "detail": [1]}}, "failed", "X", "broken"),
    ],
)
@pytest.mark.parametrize("tool", ["publish", "pick"])
async def test_cancelling_or_failing_ends_the_call_as_an_error(
    engine: Engine, tool: str, response: dict[str, Any], state: str, code: str, words: str
) -> None:
    ref = await waits(engine, tool)
    await engine.respond(ref, response)
    message = (await engine.idle())["messages"][1]
    part = calls_of(message)["c1"]
    assert (part["state"], part["errorText"]) == ("output-error", words)
    assert of_type(message, "data-pai-tool-error")[0]["data"]["code"] == code
    if tool == "publish":
        assert of_type(message, "data-pai-suspension")[0]["data"]["state"] == state
    assert ("publish", True) not in engine.stage.calls


async def test_the_output_of_a_client_tool_is_what_the_client_submits(engine: Engine) -> None:
    ref = await waits(engine, "pick")
    assert (ref["name"], ref["actionId"]) == ("pick.output", "c1")
    with pytest.raises(ValidationFailed):
        await engine.submit(ref, {"approved": 1})
    await engine.submit(ref, YES)
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == YES
    with pytest.raises(ActionNotPending) as error:
        await engine.submit(ref, YES)
    assert error.value.state == "output-available"


async def test_a_client_tool_that_came_with_the_request_waits_for_its_output(engine: Engine) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    snapshot = {"name": "locate", "description": "Where?", "inputSchema": schema, "outputSchema": schema}
    engine.turns.append(tool_call("c1", "locate", {"x": 1}, dynamic=True))
    await engine.send(clientTools=[snapshot])
    [ref] = await engine.actions()
    assert [tool.name for tool in engine.model.requests[0].tools if tool.dynamic] == ["locate"]
    with pytest.raises(ValidationFailed):
        await engine.submit(ref, {"x": "no"})
    await engine.submit(ref, {"x": 2})
    state = await engine.idle()
    part = calls_of(state["messages"][1])["c1"]
    assert (part["type"], part["output"]) == ("dynamic-tool", {"x": 2})


def redeclared(engine: Engine, *names: str) -> None:
    """A newer registry does not declare these tools."""
    for name in names:
        engine.agent()._tools.pop(name)


async def test_a_call_of_a_tool_that_is_not_declared_any_more_can_be_dismissed_and_not_answered(engine: Engine) -> None:
    names = ("pick", "ticket", "publish")
    engine.turns.append([one for name in names for one in tool_call(name, name, {"title": "a"})])
    await engine.send()
    refs = await engine.actions(count=3)
    redeclared(engine, *names)
    before = await engine.settled()
    for ref in refs:
        with pytest.raises(ValidationFailed) as refused:
            await engine.submit(ref, YES)
        assert refused.value.errors[0].path == "ref.toolName"
    assert await engine.state() == before
    pick, ticket, publish = refs
    await engine.respond(pick, {"type": "cancel", "reason": "gone"})
    assert await engine.actions(count=2) == [ticket, publish], "an answer takes no other from the list"
    await engine.respond(ticket, {"type": "fail", "error": {"message": "gone"}})
    await engine.respond(publish, {"type": "cancel", "reason": "gone"})
    state = await engine.idle()
    assert {part["errorText"] for part in calls_of(state["messages"][1]).values()} == {"gone"}
    assert text_of(state["messages"][2]) == "ok"
    for ref, ended in ((pick, "output-error"), (ticket, "output-error"), (publish, "cancelled")):
        with pytest.raises(ActionNotPending) as error:
            await engine.respond(ref, {"type": "cancel"})
        assert error.value.state == ended


async def test_a_call_that_waits_outside_still_does_when_its_tool_has_become_one_of_the_server(engine: Engine) -> None:
    ref = await waits(engine, "ticket", {})
    redeclared(engine, "ticket")

    @engine.agent().tool
    async def ticket() -> int:
        """Open a ticket here."""
        raise AssertionError("nobody executes the call")

    with pytest.raises(ValidationFailed):
        await engine.submit(ref, "no number")
    await engine.submit(ref, 5)
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == 5


@pytest.mark.parametrize("tool", ["pick", "ticket"])
async def test_a_steer_supersedes_a_call_of_a_tool_that_is_not_declared_any_more(engine: Engine, tool: str) -> None:
    ref = await waits(engine, tool)
    redeclared(engine, tool)
    await engine.send("instead", queue={"mode": "steer"})
    state = await engine.idle()
    assert [run["status"] for run in state["runs"]] == ["completed", "completed"]
    with pytest.raises(ActionNotPending):
        await engine.respond(ref, {"type": "cancel"})


async def test_two_suspensions_of_one_call_are_answered_one_after_the_other(engine: Engine) -> None:
    first = await waits(engine, "publish_twice")
    await engine.submit(first, YES)

    async def moved() -> Any:
        actions = (await engine.thread()).actions
        return actions if actions and actions[0]["suspendName"] == "second" else None

    [other] = await wait_until(moved)
    with pytest.raises(ActionNotPending):
        await engine.submit(first, YES)
    await engine.submit(other, {"approved": False})
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "True False"
    inputs = [part["data"]["input"] for part in of_type(state["messages"][1], "data-pai-suspension")]
    assert inputs == [{"title": "a"}, {"title": "a again"}]


async def test_five_calls_are_answered_in_reverse_order(engine: Engine) -> None:
    engine.turns.append(
        [one for n in range(5) for one in tool_call(f"c{n}", "publish" if n % 2 else "pick", {"title": f"t{n}"})]
    )
    await engine.send()
    refs = await engine.actions(count=5)
    assert [ref["toolCallId"] for ref in refs] == [f"c{n}" for n in range(5)]
    for ref in reversed(refs):
        assert len(engine.model.requests) == 1
        await engine.submit(ref, YES)
    state = await engine.idle()
    assert all(part["state"] == "output-available" for part in calls_of(state["messages"][1]).values())
    assert len(engine.model.requests) == 2


async def test_five_answers_at_once_are_all_taken(engine: Engine) -> None:
    engine.turns.append([one for n in range(5) for one in tool_call(f"c{n}", "publish", {"title": f"t{n}"})])
    await engine.send()
    refs = await engine.actions(count=5)
    await asyncio.gather(*(engine.submit(ref, YES, runtime=engine.runtimes[n % 2]) for n, ref in enumerate(refs)))
    state = await engine.idle()
    outputs = [part["output"] for part in calls_of(state["messages"][1]).values()]
    assert outputs == [f"T{n} True" for n in range(5)]
    assert engine.stage.count("publish") == 5
    assert len(engine.model.requests) == 2


@pytest.mark.parametrize("tool", ["ask", "ticket"])
async def test_a_call_that_nobody_answers_in_time_ends_as_an_error(engine: Engine, tool: str) -> None:
    ref = await waits(engine, tool, {})
    await engine.sweep()
    assert await engine.actions() == [ref]
    await engine.make_due()
    state = await engine.idle()
    part = calls_of(state["messages"][1])["c1"]
    assert (part["state"], part["errorText"]) == ("output-error", "Nobody answered in time.")
    with pytest.raises(ActionNotPending):
        await engine.submit(ref, 1)


async def test_an_answer_and_the_timeout_at_once_have_one_winner(engine: Engine) -> None:
    ref = await waits(engine, "ask", {})
    answer, _ = await asyncio.gather(engine.submit(ref, 1), engine.make_due(), return_exceptions=True)
    part = calls_of((await engine.idle())["messages"][1])["c1"]
    assert part["state"] == ("output-error" if isinstance(answer, ActionNotPending) else "output-available")


@pytest.mark.parametrize("stop_first", [False, True])
async def test_an_answer_and_a_stop_at_once_leave_a_stopped_run(engine: Engine, stop_first: bool) -> None:
    ref = await waits(engine)
    engine.stage.values["gated"] = True
    operations = [engine.stop(), engine.submit(ref, YES)]
    if not stop_first:
        operations.reverse()
    answers = await asyncio.gather(*operations, return_exceptions=True)
    assert all(not isinstance(answer, BaseException) or isinstance(answer, PaiError) for answer in answers)
    state = await engine.state()
    assert state["runs"][0]["status"] == "cancelled"
    assert state["thread"]["status"] == "idle"
    engine.stage.gate("publish a").set()
    for worker in engine.workers:
        await worker.quiet()
    assert (await engine.state())["messages"] == state["messages"]


async def test_a_steer_supersedes_what_a_run_waits_for(engine: Engine) -> None:
    ref = await waits(engine)
    engine.turns.append("steered")
    await engine.send("instead", queue={"mode": "steer"})
    state = await engine.idle()
    assert [run["status"] for run in state["runs"]] == ["completed", "completed"]
    assert state["runs"][0]["finishReason"] == "steered"
    message = state["messages"][1]
    assert calls_of(message)["c1"]["state"] == "output-error"
    assert of_type(message, "data-pai-tool-error")[0]["data"]["code"] == "superseded"
    assert text_of(state["messages"][-1]) == "steered"
    with pytest.raises(ActionNotPending) as error:
        await engine.submit(ref, YES)
    assert error.value.state == "superseded"


async def test_a_steer_waits_for_running_tools_and_then_supersedes_the_waiting_ones(engine: Engine) -> None:
    engine.turns.append([*tool_call("c1", "hold", {"name": "a"}), *tool_call("c2", "pick", {"title": "x"})])
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold"))
    await engine.send("instead", queue={"mode": "steer"})
    assert (await engine.state())["thread"]["status"] == "running"
    engine.stage.gate("a").set()
    state = await engine.idle()
    parts = calls_of(state["messages"][1])
    assert (parts["c1"]["state"], parts["c2"]["state"]) == ("output-available", "output-error")
    assert state["runs"][0]["finishReason"] == "steered"


async def test_an_approval_is_never_applied_to_something_else(engine: Engine) -> None:
    ref = await waits(engine)
    engine.stage.values["title"] = "something else"
    await engine.submit(ref, YES)
    message = (await engine.idle())["messages"][1]
    assert calls_of(message)["c1"]["state"] == "output-error"
    assert of_type(message, "data-pai-tool-error")[0]["data"]["code"] == "changed_since_suspension"
    assert ("publish", True) not in engine.stage.calls


async def test_a_worker_that_dies_after_the_answer_ends_the_call_as_interrupted(engine: Engine) -> None:
    engine.stage.values["gated"] = True
    ref = await waits(engine)
    await engine.submit(ref, YES)
    await wait_until(lambda: engine.stage.count("publish"))
    await engine.lapse()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-error"
    engine.stage.gate("publish a").set()


async def test_tool_data_is_written_by_the_client_while_the_call_is_open(engine: Engine) -> None:
    ref = await waits(engine, "pick")
    for value in ("one", "two"):
        await write(engine, ref, "note", value)
    message = (await engine.state())["messages"][1]
    assert [part["data"]["value"] for part in of_type(message, "data-pai-tool-data")] == ["two"]
    before = await engine.settled()
    with pytest.raises(Forbidden):
        await write(engine, ref, "secret", "x")
    for name, value in (("unknown", 1), ("note", 5), ("note", "x" * 3000)):
        with pytest.raises(ValidationFailed):
            await write(engine, ref, name, value)
    for wrong in ({"messageId": "other"}, {"toolCallId": "other"}):
        with pytest.raises(NotFound):
            await write(engine, {**ref, **wrong}, "note", "x")
    assert await engine.state() == before
    await engine.submit(ref, YES)
    await engine.idle()
    with pytest.raises(CallSettled):
        await write(engine, ref, "note", "late")


async def test_a_message_that_still_streams_has_one_writer(engine: Engine) -> None:
    """The stream may have been stored in between, so that the call can be seen in SQL."""
    gate = asyncio.Event()
    chunks = [*tool_call("c1", "pick", {"title": "a"}), *tool_call("c2", "echo", {"words": "x"})]
    engine.turns.append(Turn(chunks=chunks, gate=gate, gate_at=4))
    await engine.send()

    async def seen() -> Any:
        messages = (await engine.state())["messages"]
        return len(messages) > 1 and calls_of(messages[1]).get("c1", {}).get("state") == "input-available"

    await wait_until(seen)
    state = await engine.state()
    from pai.protocol.json import dumps

    parts = dumps(state["messages"][1]["parts"]).decode()
    await engine.execute("UPDATE message SET parts = :parts WHERE open = true", parts=parts)
    ref = {"messageId": state["messages"][1]["id"], "toolCallId": "c1", "runId": state["activeRunId"]}
    with pytest.raises(NotFound):
        await write(engine, ref, "note", "early")
    action = {"kind": "tool", "threadId": "t", "toolName": "pick", **ref, "actionId": "c1", "name": "pick.output"}
    with pytest.raises(NotFound):
        await engine.submit(action, YES)
    await engine.execute("UPDATE message SET parts = '[]' WHERE open = true")
    gate.set()
    [ref] = await engine.actions()
    await check_rules(engine)
    await engine.submit(ref, YES)
    await engine.idle()
