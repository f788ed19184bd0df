"""Tool calls: what each kind of tool may do, and how each kind of failure ends."""

from typing import Any

import pytest
from engine_agent import ESCAPES
from engine_parts import Engine, calls_of, of_type, text_of
from test_engine_stop import chunks_of

from pai.models.chunks import text, tool_call, tool_input_error, tool_input_start
from pai.models.model import FinishReason
from pai.models.scripted import Turn
from support.waiting import wait_until


async def called(engine: Engine, name: str, input: Any = None, **more: Any) -> dict[str, Any]:
    """Calls one tool in a run that completes; -> its part, with the sidecar of its error under `sidecar`."""
    engine.turns.append(tool_call("c1", name, input or {}, **more))
    engine.turns.append("done")
    await engine.run()
    state = await engine.state()
    assert state["runs"][-1]["status"] == "completed"
    assert text_of(state["messages"][-1]) == "done"
    sidecars = of_type(state["messages"][1], "data-pai-tool-error")
    return {**calls_of(state["messages"][1])["c1"], "sidecar": sidecars[0]["data"] if sidecars else None}


async def test_sync_and_async_tools_return_their_output(engine: Engine) -> None:
    engine.turns.append([*tool_call("c1", "add", {"left": 1, "right": 2}), *tool_call("c2", "echo", {"words": "hi"})])
    await engine.run()
    state = await engine.state()
    parts = calls_of(state["messages"][1])
    assert (parts["c1"]["output"], parts["c2"]["output"]) == (3, "hi")
    assert [request.message_id for request in engine.model.requests] == [m["id"] for m in state["messages"][1:]]
    told = engine.model.requests[1].messages[-1]
    assert calls_of(dict(told))["c1"]["output"] == 3
    assert len({message["metadata"]["pai"]["runId"] for message in state["messages"]}) == 1


async def test_an_async_generator_shows_every_output_and_the_last_one_is_the_result(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "count", {"to": 3}))
    await engine.send()

    async def output() -> Any:
        messages = (await engine.state())["messages"]
        return calls_of(messages[1]).get("c1", {}) if len(messages) > 1 else {}

    for number in (1, 2, 3):
        await wait_until(lambda number=number: ("count", f"count {number}") in engine.stage.calls)

        async def shown(number: int = number) -> bool:
            part = await output()
            return bool(part.get("output") == number and part.get("preliminary"))

        await wait_until(shown)
        engine.stage.gate(f"count {number}").set()
    state = await engine.idle()
    part = calls_of(state["messages"][1])["c1"]
    assert part["output"] == 3
    assert "preliminary" not in part


@pytest.mark.parametrize(
    ("name", "input", "code", "words"),
    [
        ("refuse", {}, "CITY_UNKNOWN", "No such city."),
        ("broken", {}, "failed", "The tool failed."),
        ("slow", {}, "timeout", "The call took too long and was ended."),
        ("wrong", {}, "output_invalid", "The tool returned something that does not fit its declaration."),
        ("huge", {"size": 5000}, "output_invalid", "too large"),
        ("add", {"left": "x"}, "input_invalid", "right"),
        ("nobody", {}, "unknown_tool", "There is no tool named nobody."),
    ],
)
async def test_a_failed_call_tells_the_model_and_people_why(
    engine: Engine, name: str, input: dict[str, Any], code: str, words: str
) -> None:
    part = await called(engine, name, input)
    assert part["state"] == "output-error"
    assert words in part["errorText"]
    assert "secret" not in part["errorText"]
    assert part["sidecar"]["code"] == code
    assert part["sidecar"]["message"] == part["errorText"]
    assert part["sidecar"].get("detail") == ({"city": "Atlantis"} if name == "refuse" else None)


@pytest.mark.parametrize("tool", ["escape", "escape_in_thread"])
@pytest.mark.parametrize("how", list(ESCAPES))
async def test_whatever_a_tool_raises_ends_its_call_and_nothing_else(
    engine: Engine, caplog: pytest.LogCaptureFixture, tool: str, how: str
) -> None:
    part = await called(engine, tool, {"how": how})
    assert (part["state"], part["sidecar"]["code"]) == ("output-error", "failed")
    assert part["errorText"] == "The tool failed."
    assert type(ESCAPES[how]).__name__ in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("tool", ["restless", "chatty"])
async def test_a_tool_that_never_waits_is_ended_in_time(engine: Engine, tool: str) -> None:
    part = await called(engine, tool)
    assert (part["state"], part["sidecar"]["code"]) == ("output-error", "timeout")


async def test_an_error_of_a_tool_is_bounded(engine: Engine) -> None:
    part = await called(engine, "loud")
    assert part["errorText"] == "x" * 10_000 + "…"
    assert part["sidecar"] == {"toolCallId": "c1", "message": part["errorText"], "code": "c" * 200}


async def test_what_a_tool_returns_is_cleaned_before_it_is_streamed(engine: Engine) -> None:
    engine.stage.values["given"] = {"a\0": "b\ud83d", "\ud800": 1, "n": 2**60, "deep": [[[None]]]}
    part = await called(engine, "given")
    assert part["output"] == {
        "a\N{REPLACEMENT CHARACTER}": "b\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}": 1,
        "n": 2**60,
        "deep": [[[None]]],
    }


@pytest.mark.parametrize("value", [float("nan"), object(), {1: object()}])
async def test_what_is_no_json_is_no_output(engine: Engine, value: Any) -> None:
    engine.stage.values["given"] = value
    part = await called(engine, "given")
    assert part["sidecar"]["code"] == "output_invalid"


async def test_an_output_of_null_is_an_output(engine: Engine) -> None:
    engine.stage.values["given"] = None
    part = await called(engine, "given")
    assert (part["state"], part["output"]) == ("output-available", None)


async def test_an_input_that_the_model_spoilt_is_never_executed(engine: Engine) -> None:
    engine.turns.append([tool_input_start("c1", "echo"), tool_input_error("c1", "echo", "{bad", "It does not parse.")])
    engine.turns.append("done")
    await engine.run()
    part = calls_of((await engine.state())["messages"][1])["c1"]
    assert (part["state"], part["errorText"]) == ("output-error", "It does not parse.")
    assert engine.stage.calls == []


@pytest.mark.parametrize("complete", [False, True])
async def test_a_call_that_was_cut_off_is_never_executed_and_the_model_is_told(engine: Engine, complete: bool) -> None:
    call = tool_call("c1", "echo", {"words": "x"}, deltas=3)
    engine.turns.append(Turn(chunks=call if complete else call[:-1], finish_reason=FinishReason.length))
    engine.turns.append("sorry")
    await engine.run()
    state = await engine.state()
    part = calls_of(state["messages"][1])["c1"]
    assert part["state"] == "output-error"
    assert "cut off" in part["errorText"]
    assert engine.stage.calls == []
    assert text_of(state["messages"][2]) == "sorry"


async def test_parallel_calls_run_together_and_the_model_goes_on_when_all_are_settled(engine: Engine) -> None:
    names = ["a", "b", "c", "d"]
    engine.turns.append([one for name in names for one in tool_call(f"c{name}", "hold", {"name": name})])
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold") == 4)
    for name in names[:-1]:
        engine.stage.gate(name).set()

    async def settled(count: int) -> bool:
        parts = calls_of((await engine.state())["messages"][1]).values()
        return sum(part["state"] == "output-available" for part in parts) == count

    await wait_until(lambda: settled(3))
    assert len(engine.model.requests) == 1
    engine.stage.gate("d").set()
    state = await engine.idle()
    assert len(engine.model.requests) == 2
    assert len(state["messages"]) == 3
    assert len(engine.post.sent) == 1, "one broker message for the whole run"


async def test_calls_that_end_at_the_same_moment_start_the_model_once(engine: Engine) -> None:
    for round_ in range(5):
        engine.turns.append([one for n in range(6) for one in tool_call(f"c{round_}-{n}", "echo", {"words": str(n)})])
        await engine.run(thread=f"t{round_}")
    assert len(engine.model.requests) == 10


async def test_the_step_limit_ends_a_run_that_calls_for_ever(engine: Engine) -> None:
    for number in range(10):
        engine.turns.append(tool_call(f"c{number}", "echo", {"words": "again"}))
    await engine.run()
    state = await engine.state()
    assert (state["runs"][0]["status"], state["runs"][0]["finishReason"]) == ("completed", "max-steps")
    assert len(engine.model.requests) == 5
    assert engine.stage.count("echo") == 5


async def test_a_turn_that_the_provider_paused_goes_on_at_once(engine: Engine) -> None:
    engine.turns += [Turn(chunks=text("half "), suspended=True), "whole"]
    await engine.run()
    state = await engine.state()
    assert [text_of(message) for message in state["messages"][1:]] == ["half ", "whole"]


async def test_a_tool_that_may_run_again_is_tried_again_after_a_while_when_it_fails(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "fail_once", {}))
    await engine.send()

    async def put_back() -> bool:
        return any(step.state == "pending" and step.tries == 1 for step in await engine.steps())

    await wait_until(put_back)
    await engine.sweep()
    assert engine.stage.count("fail_once") == 1
    await engine.make_due()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "well"
    assert engine.stage.count("fail_once") == 2
    assert len({key for _, key in engine.stage.calls}) == 1


async def test_a_tool_shows_data_and_parts_while_it_runs_and_transient_ones_are_not_kept(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "work", {"name": "a"}))
    result = (await engine.send()).result
    await wait_until(lambda: engine.stage.count("work"))

    async def shown() -> bool:
        message = (await engine.state())["messages"][1]
        return bool(of_type(message, "data-pai-tool-data") and of_type(message, "data-chart"))

    await wait_until(shown)
    engine.stage.gate("a").set()
    state = await engine.idle()
    message = state["messages"][1]
    assert of_type(message, "data-pai-tool-data") == [
        {
            "type": "data-pai-tool-data",
            "id": "c1:progress",
            "data": {"toolCallId": "c1", "name": "progress", "value": 2},
        }
    ]
    assert of_type(message, "data-chart") == [{"type": "data-chart", "id": "chart-1", "data": {"bars": 1}}]
    charts = [one for one in await chunks_of(engine, result.version) if one["type"] == "data-chart"]
    assert [chart.get("transient", False) for chart in charts] == [False, True]


async def test_a_remembered_effect_is_done_once_and_an_unfinished_one_again_only_when_it_is_safe(
    engine: Engine,
) -> None:
    engine.turns.append(tool_call("c1", "effects", {"safe": True}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("second") == 1)
    await engine.lapse()
    await wait_until(lambda: engine.stage.count("second") == 2)
    engine.stage.gate("second").set()
    state = await engine.idle()
    assert calls_of(state["messages"][1])["c1"]["output"] == "1 2"
    assert engine.stage.count("first") == 1


async def test_an_effect_whose_outcome_is_unknown_is_not_done_again(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "effects", {"safe": False}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("second") == 1)
    await engine.lapse()
    state = await engine.idle()
    part = calls_of(state["messages"][1])["c1"]
    assert part["state"] == "output-error"
    assert "nobody knows" in part["errorText"]
    assert engine.stage.count("second") == 1
    step = next(step for step in await engine.steps() if step.kind == "tool")
    assert step.tries == 1, "asking again cannot help"
    engine.stage.gate("second").set()
