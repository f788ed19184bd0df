"""What operators see of a worker: its metrics count what happened, and its log lines name what they are about."""

import logging

import pytest
from engine_parts import Engine

from pai.models import ModelError
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from support.waiting import wait_until


def counted(engine: Engine, name: str, **labels: str) -> float:
    """The sum over the workers."""
    values = (worker.runner.metrics.registry.get_sample_value(name, labels) for worker in engine.workers)
    return sum(value or 0 for value in values)


async def test_steps_are_counted_by_kind_and_outcome(engine: Engine) -> None:
    engine.turns += [[*tool_call("c1", "echo", {"words": "hi"}), *tool_call("c2", "broken", {})], "done"]
    await engine.run()
    await wait_until(lambda: counted(engine, "pai_steps_total", kind="model", outcome="done") == 2)
    assert counted(engine, "pai_steps_total", kind="tool", outcome="done") == 1
    assert counted(engine, "pai_steps_total", kind="tool", outcome="failed") == 1
    assert counted(engine, "pai_step_seconds_count", kind="tool") == 2


async def test_a_failed_tool_is_logged_with_all_that_names_it(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.turns += [tool_call("c1", "broken", {}), "done"]
    await engine.run()
    state = await engine.state()
    [line] = [record.getMessage() for record in caplog.records if "A tool failed" in record.getMessage()]
    run_id = state["runs"][0]["runId"]
    for fact in ("agent=main", f"thread={state['thread']['threadId']}", f"run={run_id}", "step=step_", "tool=broken"):
        assert fact in line
    assert "call=c1" in line


async def test_a_failed_model_call_is_logged_with_all_that_names_it(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.turns.append(Turn(chunks=text(["x"]), error=ModelError("No such model.")))
    run_id = await engine.run()
    assert (await engine.state())["runs"][0]["status"] == "failed", run_id
    [line] = [record.getMessage() for record in caplog.records if "A model call failed" in record.getMessage()]
    assert "the run fails (provider_error: No such model.): agent=main owner=" in line
    assert " kind=model model=" in line
    await wait_until(lambda: counted(engine, "pai_steps_total", kind="model", outcome="failed") == 1)


async def test_a_takeover_is_counted_and_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine.turns += [tool_call("c1", "hold", {"name": "a"}), "done"]
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold"))
    await engine.lapse()
    await engine.idle()
    assert counted(engine, "pai_takeovers_total") == 1
    lines = [record.getMessage() for record in caplog.records]
    [line] = [line for line in lines if line.startswith("A step was taken over, its lease had run out: ")]
    assert " kind=tool tool=hold call=c1" in line
    engine.stage.gate("a").set()
    await wait_until(lambda: counted(engine, "pai_steps_total", kind="tool", outcome="lost") == 1)
