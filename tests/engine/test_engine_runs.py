"""Runs: their records, usage and errors; model failures and retries; hooks."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from engine_parts import Engine, calls_of, text_of
from engine_rules import check_rules

from pai.contract import RunContext, StepPreparation
from pai.engine import api
from pai.engine.runtime import Caller
from pai.models import ModelError
from pai.models.chunks import text, tool_call
from pai.models.errors import ModelErrorCode
from pai.models.scripted import Turn
from pai.protocol.identity import Identity
from pai.protocol.usage import InputTokenDetails, UsageSummary
from support.waiting import wait_until

USAGE = UsageSummary(
    input_tokens=7, output_tokens=3, total_tokens=10, input_token_details=InputTokenDetails(cache_read_tokens=2)
)


def failing(error: BaseException, *, at: int = 0, chunks: Any = None) -> Turn:
    return Turn(chunks=chunks or text(["par", "tial"]), error=error, error_at=at, usage=USAGE)


async def test_usage_counts_every_call_in_the_message_the_run_and_the_thread(engine: Engine) -> None:
    engine.turns.append(Turn(chunks=tool_call("c1", "echo", {"words": "x"}), usage=USAGE))
    engine.turns.append(Turn(chunks=text("end"), usage=USAGE))
    await engine.run()
    engine.turns.append(Turn(chunks=text("end"), usage=USAGE))
    await engine.run()
    state = await engine.state()
    assert [run["usage"]["totalTokens"] for run in state["runs"]] == [20, 10]
    assert state["usage"]["totalTokens"] == 30
    assert state["usage"]["inputTokenDetails"] == {"cacheReadTokens": 6}
    facts = state["messages"][1]["metadata"]["pai"]
    assert facts["usage"]["totalTokens"] == 10
    assert facts["diagnostics"]["model"] == "scripted"
    assert facts["diagnostics"]["attempt"] == 1


async def test_an_error_that_will_not_pass_fails_the_run_at_once_and_keeps_what_was_streamed(engine: Engine) -> None:
    engine.turns.append(failing(ModelError("No key.", code=ModelErrorCode.auth), at=2))
    await engine.run()
    state = await engine.state()
    run = state["runs"][0]
    assert (run["status"], run["error"]) == ("failed", {"code": "auth", "message": "No key."})
    assert {key: state["error"][key] for key in ("code", "message", "runId")} == {**run["error"], "runId": run["runId"]}
    assert text_of(state["messages"][1]) == "par"
    assert state["usage"]["totalTokens"] == 10
    await engine.run("again")
    assert (await engine.state())["error"] is None


async def test_a_failure_before_the_first_chunk_leaves_no_message(engine: Engine) -> None:
    engine.turns.append(failing(ModelError("No key.", code=ModelErrorCode.auth)))
    await engine.run()
    assert len((await engine.state())["messages"]) == 1


async def test_a_bug_in_the_model_adapter_fails_the_run_without_its_details(engine: Engine) -> None:
    engine.turns.append(failing(RuntimeError("secret"), at=2))
    await engine.run()
    state = await engine.state()
    assert state["error"]["code"] == "failed"
    assert "secret" not in state["error"]["message"]


async def test_a_model_that_sends_what_cannot_be_folded_fails_the_run(engine: Engine) -> None:
    engine.turns.append([*text("fine"), {"type": "text-delta", "id": "nowhere", "delta": "x"}])
    await engine.run()
    state = await engine.state()
    assert state["runs"][0]["status"] == "failed"
    assert text_of(state["messages"][1]) == "fine"


async def test_an_error_that_may_pass_is_tried_again_after_a_while(engine: Engine) -> None:
    engine.turns.append(failing(ModelError("Broken pipe.", retryable=True), at=2))
    engine.turns.append("well")
    await engine.send()

    async def put_back() -> bool:
        return any(step.state == "pending" and step.attempt == 2 for step in await engine.steps())

    await wait_until(put_back)
    await engine.sweep()
    assert len(engine.model.requests) == 1, "it is not due yet"
    [step] = await engine.steps()
    for worker in engine.workers:
        worker.take(step.step_id)
        await worker.quiet()
    assert len(engine.model.requests) == 1, "a claim before it is due finds nothing"
    await check_rules(engine)
    await engine.make_due()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "well"
    assert state["usage"]["totalTokens"] == 10
    assert state["messages"][1]["metadata"]["pai"]["diagnostics"]["attempt"] == 2


async def test_tries_are_spent_and_then_the_run_fails(engine: Engine) -> None:
    for _ in range(3):
        engine.turns.append(failing(ModelError("Broken pipe.", retryable=True), at=2))
    await engine.send()
    for left in (2, 1):
        await wait_until(lambda left=left: len(engine.turns) == left)
        await put_back_again(engine)
        await engine.make_due()
    state = await engine.idle()
    assert state["error"]["code"] == "provider_error"
    assert state["usage"]["totalTokens"] == 30


async def put_back_again(engine: Engine) -> None:
    async def pending() -> bool:
        return (await engine.steps())[0].state == "pending"

    await wait_until(pending)


@pytest.mark.parametrize("code", [ModelErrorCode.rate_limited, ModelErrorCode.overloaded])
async def test_a_rate_limit_honours_what_the_provider_asks_for_and_spends_no_try(
    engine: Engine, code: ModelErrorCode
) -> None:
    error = ModelError("Slow down.", code=code, retryable=True, retry_after=timedelta(seconds=90))
    for _ in range(4):
        engine.turns.append(failing(error))
    engine.turns.append("well")
    await engine.send()
    for left in (4, 3, 2, 1):
        await wait_until(lambda left=left: len(engine.turns) == left)
        await put_back_again(engine)
        [step] = await engine.steps()
        assert step.tries == 0
        assert step.available_at - (step.first_started_at or 0) >= 90_000
        await engine.make_due()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "well"


async def test_a_rate_limit_beyond_the_deadline_fails_the_run(engine: Engine) -> None:
    error = ModelError("Later.", code=ModelErrorCode.rate_limited, retryable=True, retry_after=timedelta(hours=1))
    engine.turns.append(failing(error))
    await engine.run()
    assert (await engine.state())["error"]["code"] == "rate_limited"


async def test_a_failed_run_lets_the_queue_proceed(engine: Engine) -> None:
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=text("x"), gate=gate, gate_at=1, error=ModelError("No."), error_at=1))
    await engine.send()
    await wait_until(lambda: not engine.turns)
    await engine.send("next", queue={"mode": "queue"})
    gate.set()
    state = await engine.idle()
    assert [run["status"] for run in state["runs"]] == ["failed", "completed"]
    assert state["error"] is None


async def test_the_history_is_what_was_said_in_order(engine: Engine) -> None:
    engine.turns += [tool_call("c1", "echo", {"words": "x"}), "one", "two"]
    await engine.run("first")
    await engine.run("second")
    told = engine.model.requests[-1]
    assert [message["role"] for message in told.messages] == ["user", "assistant", "assistant", "user"]
    assert told.used_call_ids == frozenset()
    assert "c1" in engine.model.requests[1].used_call_ids


async def test_hooks_run_at_the_start_and_the_end_and_may_add_messages_and_metadata(engine: Engine) -> None:
    def start(ctx: RunContext) -> None:
        ctx.add_message("context for all")
        ctx.add_message("only for the model", visibility="model")
        ctx.add_message("only for people", visibility="ui")
        ctx.add_message("for nobody", visibility="none")
        ctx.update_metadata(thread={"topic": "x"}, run={"mark": 1}, private_run={"secret": 2})

    def finish(ctx: RunContext) -> None:
        ctx.add_message("summary", role="assistant", relation="output")

    engine.stage.values |= {"start": start, "finish": finish}
    result = await engine.run(agent="hooked")
    state = await engine.state(agent="hooked")
    shown = [text_of(message) for message in state["messages"]]
    assert shown == ["hello", "context for all", "only for people", "ok", "summary"]
    told = [text_of(dict(message)) for message in engine.model.requests[0].messages]
    assert told == ["hello", "context for all", "only for the model"]
    assert state["thread"]["metadata"] == {"topic": "x"}
    assert state["runs"][0]["metadata"] == {"mark": 1}
    facts = state["messages"][1]["metadata"]["pai"]
    assert (facts["producer"], facts["relation"]) == ("lifecycle", "context")
    log = await engine.runtime.log.read_after(result.version, sequence=0)
    everything = b"".join(entry.body for entry in log.entries)
    assert b"only for the model" not in everything
    assert b"for nobody" not in everything
    assert b"secret" not in everything
    names = [name for name, _ in engine.stage.calls]
    assert names == ["started", "prepared", "finished"]
    assert engine.stage.calls[-1][1].status == "completed"


@pytest.mark.parametrize("relation", ["context", "output"])
@pytest.mark.parametrize("hook", ["start", "finish"])
async def test_each_message_of_a_hook_is_seen_by_whom_it_is_for(engine: Engine, hook: str, relation: Any) -> None:
    views: tuple[Any, ...] = ("all", "ui", "model", "none")

    def add(ctx: RunContext) -> None:
        for visibility in views:
            ctx.add_message(f"for {visibility}", role="assistant", relation=relation, visibility=visibility)

    engine.stage.values[hook] = add
    run = (await engine.run("one", agent="hooked")).run
    assert run is not None
    shown = (await engine.state(agent="hooked"))["messages"]
    added = ["for all", "for ui"]
    assert [text_of(message) for message in shown] == ["one", *([*added, "ok"] if hook == "start" else ["ok", *added])]
    for message in shown:
        if text_of(message) in added:
            facts = {name: message["metadata"]["pai"][name] for name in ("producer", "relation", "runId", "status")}
            told_of = {"producer": "lifecycle", "relation": relation, "runId": run.run_id, "status": "committed"}
            assert facts == told_of
    engine.stage.values.clear()
    await engine.run("two", agent="hooked")
    told = [text_of(dict(message)) for message in engine.model.requests[-1].messages]
    added = ["for all", "for model"]
    assert told == ["one", *([*added, "ok"] if hook == "start" else ["ok", *added]), "two"]
    trusted = Caller(Identity(subject="ops", trusted=True), engine.agent("hooked"), "default/ann")
    state = await api.get_state(engine.runtime, trusted, "t")
    assert state is not None
    assert {text_of(message) for message in state.messages} >= {f"for {visibility}" for visibility in views}


@pytest.mark.parametrize(
    "change",
    [
        lambda ctx: ctx.update_metadata(thread={"pai": 1}),
        lambda ctx: ctx.update_metadata(run={"x": object()}),
        lambda ctx: ctx.add_message([{"type": "nonsense"}]),
        lambda ctx: ctx.add_message([{"type": "text"}]),
        lambda ctx: ctx.add_message([{"type": "text", "text": "x"}], metadata={"pai": {}}),
        lambda ctx: 1 / 0,
    ],
)
async def test_a_hook_that_fails_or_adds_nonsense_fails_the_run_at_the_start_only(engine: Engine, change: Any) -> None:
    engine.stage.values["finish"] = change
    await engine.run("first", agent="hooked")
    state = await engine.state(agent="hooked")
    assert [run["status"] for run in state["runs"]] == ["completed"]
    engine.stage.values = {"start": change}
    await engine.run("second", agent="hooked")
    state = await engine.state(agent="hooked")
    assert [run["status"] for run in state["runs"]] == ["completed", "failed"]
    assert state["error"]["code"] == "failed"
    assert engine.stage.calls[-1][1].status == "failed"
    assert len(engine.model.requests) == 1


async def test_prepare_step_changes_what_the_model_gets(engine: Engine) -> None:
    engine.stage.preparation = StepPreparation(
        instructions="Sing.",
        tools=[],
        messages=[{"id": "m", "role": "user", "parts": [{"type": "text", "text": "other"}]}],
        model_settings={"temperature": 0.5},
    )
    await engine.run(agent="hooked")
    [told] = engine.model.requests
    assert (told.instructions, list(told.tools), told.settings) == ("Sing.", [], {"temperature": 0.5})
    assert [text_of(dict(message)) for message in told.messages] == ["other"]


async def test_a_hook_whose_worker_died_runs_again_and_its_messages_come_once(engine: Engine) -> None:
    def start(ctx: RunContext) -> None:
        ctx.add_message("context")

    engine.stage.values["start"] = start
    engine.post.holds = True
    await engine.send(agent="hooked")
    await engine.runtime.settle()
    [step_id] = engine.post.held
    engine.post.held.clear()
    from pai.engine.claim import claim

    await claim(engine.workers[0].runtime, step_id, worker="dead")
    engine.post.holds = False
    await engine.lapse()
    state = await engine.idle(agent="hooked")
    assert [text_of(message) for message in state["messages"]] == ["hello", "context", "ok"]


async def test_messages_of_different_threads_run_beside_each_other(engine: Engine) -> None:
    names = [f"t{number}" for number in range(10)]
    for name in names:
        engine.turns.append(tool_call("c1", "echo", {"words": name}))
    await asyncio.gather(*(engine.send(thread=name, runtime=engine.runtimes[len(name) % 2]) for name in names))
    for name in names:
        state = await engine.idle(name)
        assert state["runs"][0]["status"] == "completed"
        assert calls_of(state["messages"][1]) or text_of(state["messages"][1]) == "ok"
