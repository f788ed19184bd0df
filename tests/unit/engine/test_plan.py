"""The plan as a table: what a thread looks like, and what it does next."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from pai.engine.plan import (
    Call,
    CurrentRun,
    LiveStep,
    NewStep,
    Phase,
    Plan,
    Queued,
    RunHook,
    ThreadView,
    Turn,
    next_in_turn,
    plan,
)
from pai.protocol.state import RunStatus
from pai.store.tables import StepKind, StepState

START = frozenset({RunHook.on_run_start})
FINISH = frozenset({RunHook.on_run_finish})
MODEL = NewStep(StepKind.model, "run")


def queued(name: str, mode: Literal["queue", "steer"] = "queue") -> Queued:
    return Queued(name, f"run of {name}", mode)


def first_model(name: str) -> NewStep:
    return NewStep(StepKind.model, f"run of {name}")


def start_hook(run_id: str) -> NewStep:
    return NewStep(StepKind.hook, run_id, hook=RunHook.on_run_start)


def finish_hook() -> NewStep:
    return NewStep(StepKind.hook, "run", hook=RunHook.on_run_finish)


def tool(call_id: str, *, outside: bool = False) -> NewStep:
    return NewStep(StepKind.tool, "run", tool_call_id=call_id, outside=outside)


def step(state: StepState, call_id: str | None = None) -> LiveStep:
    kind = StepKind.model if call_id is None else StepKind.tool
    return LiveStep(f"step {call_id}", kind, state, call_id)


def run(turn: Turn | None = None, **fields: Any) -> CurrentRun:
    return CurrentRun("run", **{"phase": Phase.model, "model_steps": 1, "turn": turn, **fields})


def calls(*listed: Call, reason: Any = "tool-calls") -> Turn:
    return Turn(reason, listed)


def view(
    current: CurrentRun | None,
    *steps: LiveStep,
    queue: Sequence[Queued] = (),
    hooks: frozenset[RunHook] = frozenset(),
) -> ThreadView:
    return ThreadView(current, steps, queue, hooks)


SETTLED, OPEN, OUTSIDE = Call("a", True), Call("b", False), Call("c", False, outside=True)
SUSPENDED_B, SUSPENDED_C = step(StepState.suspended, "b"), step(StepState.suspended, "c")
STEER = [queued("q"), queued("s", "steer")]
BY_STEER: dict[str, Any] = {"status": RunStatus.completed, "admit": "s", "steps": [first_model("s")]}

TABLE: dict[str, tuple[ThreadView, Plan]] = {
    # Nothing runs.
    "an idle thread with an empty queue does nothing": (view(None), Plan()),
    "an idle thread admits the oldest input": (
        view(None, queue=[queued("q1"), queued("q2")]),
        Plan(admit="q1", steps=[first_model("q1")]),
    ),
    "an idle thread admits steer input before older queue input": (
        view(None, queue=STEER),
        Plan(admit="s", steps=[first_model("s")]),
    ),
    "an admitted run begins with its hook when there is one": (
        view(None, queue=[queued("q")], hooks=START),
        Plan(admit="q", steps=[start_hook("run of q")]),
    ),
    # Beginning.
    "a run that has just started gets its first model step": (
        view(run(phase=Phase.start, model_steps=0)),
        Plan(status=RunStatus.running, steps=[MODEL]),
    ),
    "a run that has just started gets its hook first": (
        view(run(phase=Phase.start, model_steps=0), hooks=START),
        Plan(status=RunStatus.running, steps=[start_hook("run")]),
    ),
    "a run whose hook has ended gets its first model step": (
        view(run(model_steps=0), hooks=START),
        Plan(status=RunStatus.running, steps=[MODEL]),
    ),
    "a run whose hook failed ends": (
        view(run(model_steps=0, failed=True), hooks=START),
        Plan(status=RunStatus.failed),
    ),
    # While something runs.
    "a streaming model step is left alone": (
        view(run(), step(StepState.running)),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "a steer does not cut a streaming model step": (
        view(run(), step(StepState.running), queue=STEER),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "an unclaimed step counts as one that runs": (
        view(run(), step(StepState.pending), queue=STEER),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "a steer never cuts a running tool": (
        view(run(calls(OPEN)), step(StepState.running, "b"), queue=STEER),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "a steer waits for a running tool beside a suspended one": (
        view(run(calls(OPEN, OUTSIDE)), step(StepState.running, "b"), SUSPENDED_C, queue=STEER),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "a failed run waits for the tool that still runs": (
        view(run(calls(OPEN), failed=True), step(StepState.running, "b")),
        Plan(status=RunStatus.running, steps=[]),
    ),
    # A model step has ended.
    "an answer without calls completes the run": (
        view(run(Turn("stop"))),
        Plan(status=RunStatus.completed, close_turn=True, outcome="stop"),
    ),
    "an answer that was cut off completes the run with that reason": (
        view(run(Turn("length"))),
        Plan(status=RunStatus.completed, close_turn=True, outcome="length"),
    ),
    "a completed run admits the next input in the same plan": (
        view(run(Turn("stop")), queue=[queued("q")]),
        Plan(status=RunStatus.completed, close_turn=True, outcome="stop", admit="q", steps=[first_model("q")]),
    ),
    "an answer that is complete when a steer waits ends with its own reason": (
        view(run(Turn("stop")), queue=STEER),
        Plan(close_turn=True, outcome="stop", **BY_STEER),
    ),
    "a turn that the provider paused is continued at once": (
        view(run(Turn("suspended"))),
        Plan(close_turn=True, status=RunStatus.running, steps=[MODEL]),
    ),
    "a turn that the provider paused ends for a steer": (
        view(run(Turn("suspended")), queue=STEER),
        Plan(close_turn=True, outcome="steered", **BY_STEER),
    ),
    "a turn that the provider paused for ever ends at the step limit": (
        view(run(Turn("suspended"), model_steps=50)),
        Plan(status=RunStatus.completed, close_turn=True, outcome="max-steps"),
    ),
    # Calls.
    "every open call gets a step, all at once": (
        view(run(calls(Call("x", False), Call("y", False), OUTSIDE))),
        Plan(status=RunStatus.running, steps=[tool("x"), tool("y"), tool("c", outside=True)]),
    ),
    "a settled call gets no step": (
        view(run(calls(SETTLED, OPEN))),
        Plan(status=RunStatus.running, steps=[tool("b")]),
    ),
    "calls that only wait for the outside let the run wait": (
        view(run(calls(SETTLED, OUTSIDE))),
        Plan(status=RunStatus.waiting, steps=[tool("c", outside=True)]),
    ),
    "a steer starts the tools of the turn before it takes over": (
        view(run(calls(OPEN)), queue=STEER),
        Plan(status=RunStatus.running, steps=[tool("b")]),
    ),
    "a steer supersedes calls that nobody has been asked about yet": (
        view(run(calls(OUTSIDE)), queue=STEER),
        Plan(superseded=["c"], close_turn=True, outcome="steered", **BY_STEER),
    ),
    "when all calls are settled the model goes on": (
        view(run(calls(SETTLED))),
        Plan(close_turn=True, status=RunStatus.running, steps=[MODEL]),
    ),
    "when all calls are settled a steer takes over": (
        view(run(calls(SETTLED)), queue=STEER),
        Plan(close_turn=True, outcome="steered", **BY_STEER),
    ),
    "queue input never interrupts a run": (
        view(run(calls(SETTLED)), queue=[queued("q")]),
        Plan(close_turn=True, status=RunStatus.running, steps=[MODEL]),
    ),
    "calls that were cut off are settled, and the model is told": (
        view(run(calls(SETTLED, reason="length"))),
        Plan(close_turn=True, status=RunStatus.running, steps=[MODEL]),
    ),
    "the step limit ends a run whose calls are settled": (
        view(run(calls(SETTLED), model_steps=5, max_steps=5)),
        Plan(status=RunStatus.completed, close_turn=True, outcome="max-steps"),
    ),
    "one step below the limit goes on": (
        view(run(calls(SETTLED), model_steps=4, max_steps=5)),
        Plan(close_turn=True, status=RunStatus.running, steps=[MODEL]),
    ),
    # Waiting.
    "a suspended call lets the run wait": (
        view(run(calls(SETTLED, OPEN)), SUSPENDED_B),
        Plan(status=RunStatus.waiting, steps=[]),
    ),
    "of several suspended calls one is settled and the run still waits": (
        view(run(calls(Call("b", True), OUTSIDE)), SUSPENDED_C),
        Plan(status=RunStatus.waiting, steps=[]),
    ),
    "an answered call runs again while another still waits": (
        view(run(calls(OPEN, OUTSIDE)), step(StepState.pending, "b"), SUSPENDED_C),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "queue input waits behind a waiting run": (
        view(run(calls(OPEN)), SUSPENDED_B, queue=[queued("q")]),
        Plan(status=RunStatus.waiting, steps=[]),
    ),
    "a steer supersedes everything that a waiting run waits for": (
        view(run(calls(SETTLED, OPEN, OUTSIDE)), SUSPENDED_B, SUSPENDED_C, queue=STEER),
        Plan(superseded=["b", "c"], close_turn=True, outcome="steered", **BY_STEER),
    ),
    # Ending.
    "a failed run ends and the next is admitted": (
        view(run(failed=True), queue=[queued("q")]),
        Plan(status=RunStatus.failed, admit="q", steps=[first_model("q")]),
    ),
    "the closing hook comes before the end": (
        view(run(Turn("stop")), queue=STEER, hooks=FINISH),
        Plan(close_turn=True, status=RunStatus.running, phase=Phase.finish, outcome="stop", steps=[finish_hook()]),
    ),
    "the closing hook runs for a failed run too": (
        view(run(failed=True), hooks=FINISH),
        Plan(status=RunStatus.running, phase=Phase.finish, steps=[finish_hook()]),
    ),
    "the closing hook runs for a steered run too": (
        view(run(calls(OUTSIDE)), SUSPENDED_C, queue=STEER, hooks=FINISH),
        Plan(
            superseded=["c"],
            close_turn=True,
            status=RunStatus.running,
            phase=Phase.finish,
            outcome="steered",
            steps=[finish_hook()],
        ),
    ),
    "a closing hook under way is waited for": (
        view(run(Turn("stop"), phase=Phase.finish), step(StepState.running), queue=STEER, hooks=FINISH),
        Plan(status=RunStatus.running, steps=[]),
    ),
    "after the closing hook the run is completed and the next begins with its hook": (
        view(run(Turn("stop"), phase=Phase.finish), queue=[queued("q")], hooks=START | FINISH),
        Plan(status=RunStatus.completed, admit="q", steps=[start_hook("run of q")]),
    ),
    "after the closing hook a failed run is failed": (
        view(run(phase=Phase.finish, failed=True), hooks=FINISH),
        Plan(status=RunStatus.failed),
    ),
}


def as_lists(decided: Plan) -> Plan:
    return Plan(
        superseded=list(decided.superseded),
        close_turn=decided.close_turn,
        status=decided.status,
        phase=decided.phase,
        outcome=decided.outcome,
        admit=decided.admit,
        steps=list(decided.steps),
    )


@pytest.mark.parametrize("rule", TABLE)
def test_the_plan_follows_the_table(rule: str) -> None:
    seen, expected = TABLE[rule]
    assert as_lists(plan(seen)) == as_lists(expected)


@pytest.mark.parametrize("rule", TABLE)
def test_nothing_starts_beside_a_step_that_runs(rule: str) -> None:
    seen, _ = TABLE[rule]
    decided = plan(seen)
    if any(live.state in (StepState.pending, StepState.running) for live in seen.steps):
        assert decided.admit is None
        assert all(new.kind is StepKind.tool for new in decided.steps)
    assert sum(new.kind is not StepKind.tool for new in decided.steps) <= 1


def test_steer_items_go_first_and_each_kind_in_the_order_of_arrival() -> None:
    left = [queued("q1"), queued("s1", "steer"), queued("q2"), queued("s2", "steer")]
    order = []
    while (item := next_in_turn(left)) is not None:
        order.append(item.queue_item_id)
        left.remove(item)
    assert order == ["s1", "s2", "q1", "q2"]
