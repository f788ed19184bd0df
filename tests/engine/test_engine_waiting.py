"""Around an action: who is told of it, what is kept for it, how large it may be, and what a stop does to it."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, calls_of, of_type, said
from engine_rules import check_rows

from pai.contract import ClientToolsRefused, RunContext
from pai.engine import api
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import IdempotencyConflict, PaiError, ValidationFailed
from pai.protocol.requests import ActionRequest, StopThreadRequest, ToolDataRequest
from support.waiting import wait_until

YES = {"approved": True}


def snapshot(name: str = "locate", **properties: str) -> dict[str, Any]:
    """A client tool whose output has these properties and no others."""
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"name": name, "description": "Where?", "inputSchema": {"type": "object"}, "outputSchema": schema}


async def quiet(engine: Engine) -> None:
    for worker in engine.workers:
        await worker.quiet()


@pytest.mark.parametrize(
    ("tool", "output"),
    [
        ("publish_in_thread", "a True"),
        ("publish_slowly", "a True"),
        ("publish_both", "True False"),
        ("publish_in_group", "True False"),
    ],
)
async def test_every_kind_of_function_can_wait(engine: Engine, tool: str, output: str) -> None:
    engine.turns.append(tool_call("c1", tool, {"title": "a"}))
    await engine.send()
    [ref] = await engine.actions()
    assert ref["name"] == f"{tool}.approval"
    await engine.submit(ref, YES)
    if tool in ("publish_both", "publish_in_group"):
        await quiet(engine)
        [other] = await engine.actions()
        assert other["name"] == f"{tool}.second"
        await engine.submit(other, {"approved": False})
    part = calls_of((await engine.idle())["messages"][1])["c1"]
    assert (part["state"], part["output"]) == ("output-available", output)
    assert "preliminary" not in part


async def test_an_answer_is_not_given_to_a_call_that_does_something_else_before_it_asks(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "publish_with_notes", {"title": "a"}))
    await engine.send()
    [ref] = await engine.actions()
    engine.stage.values["newer"] = True
    await engine.submit(ref, YES)
    message = (await engine.idle())["messages"][1]
    assert calls_of(message)["c1"]["state"] == "output-error"
    assert [part["data"]["code"] for part in of_type(message, "data-pai-tool-error")] == ["changed_since_suspension"]


async def test_an_application_is_told_once_of_each_action_that_waits(engine: Engine) -> None:
    calls = [one for n in range(2) for one in tool_call(f"c{n}", "pick", {"title": f"t{n}"})]
    engine.turns.append(calls)
    await engine.send(agent="hooked")
    refs = await engine.actions(count=2)

    def told() -> list[Any]:
        return [action for name, action in engine.stage.calls if name == "pending"]

    await wait_until(lambda: len(told()) == 2)
    caller = engine.caller(agent="hooked")
    for ref in refs:
        request = ActionRequest.read({"ref": ref, "response": {"type": "submit", "payload": YES}})
        await api.respond(engine.runtime, caller, "t", request)
    await engine.idle(agent="hooked")
    await quiet(engine)
    by_call = {action.ref.tool_call_id: action for action in told()}
    assert len(told()) == 2
    assert [by_call[ref["toolCallId"]].ref.wire() for ref in refs] == refs
    assert [by_call[f"c{n}"].input for n in range(2)] == [{"title": "t0"}, {"title": "t1"}]


@pytest.mark.parametrize("waits", [True, False])
async def test_the_hook_at_the_end_is_told_of_a_stop_and_the_thread_does_not_wait_for_it(
    engine: Engine, waits: bool
) -> None:
    def finish(ctx: RunContext) -> None:
        ctx.update_metadata(run={"ended": True})
        ctx.add_message("It was stopped.", role="assistant", relation="output")

    engine.stage.values["finish"] = finish
    gate = engine.stage.gate("never")
    engine.turns.append(tool_call("c1", "pick", {"title": "a"}))
    await engine.send(agent="hooked")
    await engine.actions()
    caller = engine.caller(agent="hooked")
    if not waits:
        request = ActionRequest.read({"ref": (await engine.actions())[0], "response": {"type": "cancel"}})
        engine.turns.append(Turn(chunks=text(["x"]), gate=gate))
        await api.respond(engine.runtime, caller, "t", request)
        await wait_until(lambda: len(engine.model.requests) == 2)
    reply = await api.stop_thread(engine.runtime, caller, "t", StopThreadRequest(reason="enough"))
    assert reply.result.run is not None
    assert (await engine.state(agent="hooked"))["thread"]["status"] == "idle"

    async def ended() -> Any:
        state = await engine.state(agent="hooked")
        return state if state["runs"][0]["metadata"] == {"ended": True} else None

    state = await wait_until(ended, saw=lambda: engine.stage.calls)
    outcomes = [outcome for name, outcome in engine.stage.calls if name == "finished"]
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [("cancelled", "enough")]
    assert state["messages"][-1]["metadata"]["pai"]["producer"] == "lifecycle"
    await engine.run("again", agent="hooked")


async def test_a_stopped_queue_item_has_had_no_run_to_finish(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "pick", {"title": "a"}))
    await engine.send(agent="hooked")
    await engine.actions()
    await engine.send("later", agent="hooked", queue={"mode": "queue"})
    await api.stop_thread(engine.runtime, engine.caller(agent="hooked"), "t", StopThreadRequest())
    await wait_until(lambda: engine.stage.count("finished"))
    await quiet(engine)
    assert engine.stage.count("finished") == 1


async def test_reasoning_gets_the_summary_that_the_agent_makes(engine: Engine) -> None:
    engine.stage.values["summary"] = "It thought."
    engine.turns.append([*reasoning(["long ", "thoughts"], id="r1"), *text(["so"])])
    await engine.run(agent="hooked")

    async def summarised() -> Any:
        return of_type((await engine.state(agent="hooked"))["messages"][1], "data-pai-reasoning-summary")

    [part] = await wait_until(summarised)
    assert (part["id"], part["data"]) == ("r1", {"summary": "It thought."})


async def test_an_output_is_checked_by_the_client_tool_that_the_model_saw(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "locate", {}, dynamic=True))
    await engine.send(clientTools=[snapshot(x="integer")])
    [ref] = await engine.actions()
    await engine.send("later", queue={"mode": "queue"}, clientTools=[snapshot(y="string")])
    for payload in ({"y": "a"}, {"x": "1"}, {"x": 1, "y": "a"}, {}, None):
        with pytest.raises(ValidationFailed):
            await engine.submit(ref, payload, clientTools=[snapshot(y="string")])
    await engine.submit(ref, {"x": 1}, clientTools=[snapshot(y="string")])
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == {"x": 1}
    offered = [[tool for tool in one.tools if tool.dynamic] for one in engine.model.requests]
    assert [len(tools) for tools in offered] == [1, 1, 1]


async def test_a_client_tool_may_not_take_the_name_of_a_tool_of_the_agent(engine: Engine) -> None:
    await engine.run()
    before = await engine.settled()
    for tools in ([snapshot("add")], [snapshot("pick")], [snapshot("a"), snapshot("a")], [{"name": "b"}]):
        with pytest.raises(ClientToolsRefused):
            await engine.send(clientTools=tools)
    assert await engine.state() == before


async def test_an_idempotency_key_counts_for_tool_data_too(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "pick", {"title": "a"}))
    await engine.send()
    [ref] = await engine.actions()
    names = {"messageId": ref["messageId"], "toolCallId": "c1", "name": "note"}

    async def write(value: Any, key: str | None) -> Any:
        request = ToolDataRequest.read({**names, "value": value})
        return await api.write_tool_data(engine.runtime, engine.caller(), "t", request, key=key)

    first = await write("one", "k")
    await write("two", None)
    again = await write("one", "k")
    assert (first.replayed, again.replayed, again.result) == (False, True, first.result)
    with pytest.raises(IdempotencyConflict):
        await write("three", "k")
    [part] = of_type((await engine.state())["messages"][1], "data-pai-tool-data")
    assert part["data"]["value"] == "two"
    await engine.submit(ref, YES)
    await engine.idle()
    assert (await write("one", "k")).replayed, "also when the call is settled"


async def test_what_people_and_tools_store_has_a_limit(engine: Engine) -> None:
    for how in ("data", "part", "input", "none"):
        engine.turns.append(tool_call(f"c-{how}", "bulky", {"how": how}))
        await engine.run(how, thread=how)
        part = calls_of((await engine.state(how))["messages"][1])[f"c-{how}"]
        assert part["state"] == ("output-available" if how == "none" else "output-error"), how
    engine.turns.append(tool_call("c1", "pick", {"title": "a"}))
    await engine.send()
    [ref] = await engine.actions()
    before = await engine.settled()
    for response in (
        {"type": "submit", "payload": "x" * 3000},
        {"type": "fail", "error": {"message": "no", "detail": ["x" * 3000]}},
    ):
        with pytest.raises(ValidationFailed):
            await engine.respond(ref, response)
    with pytest.raises(ValidationFailed):
        await engine.submit(ref, YES, clientData="x" * engine.settings.max_message_bytes)
    assert await engine.state() == before


@pytest.mark.parametrize("stop_first", [False, True])
async def test_an_answer_that_races_a_stop_has_one_end_in_every_interleaving(engine: Engine, stop_first: bool) -> None:
    """The second begins after a growing number of turns of the loop."""
    for ticks in range(0, 68, 2):
        thread = f"t{ticks}"
        engine.turns.append([*tool_call("c1", "publish", {"title": "a"}), *tool_call("c2", "pick", {"title": "b"})])
        await engine.send(thread=thread)
        ref, _ = await engine.actions(thread, count=2)
        operations = [engine.stop(thread), engine.submit(ref, YES, runtime=engine.runtimes[1])]
        first, second = operations if stop_first else reversed(operations)
        begun = asyncio.ensure_future(first)
        for _ in range(ticks):
            await asyncio.sleep(0)
        answers = await asyncio.gather(begun, second, return_exceptions=True)
        assert all(not isinstance(answer, BaseException) or isinstance(answer, PaiError) for answer in answers)
        state = await engine.state(thread)
        assert (state["runs"][0]["status"], state["thread"]["status"]) == ("cancelled", "idle")
        parts = calls_of(state["messages"][1]).values()
        assert all(part["state"] in ("output-available", "output-error") for part in parts)
        await api.send(engine.runtime, engine.caller(), thread, said("and then?"))
        state = await engine.idle(thread)
        assert [run["status"] for run in state["runs"]] == ["cancelled", "completed"]
    await quiet(engine)
    await check_rows(engine)
