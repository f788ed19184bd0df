"""What a thread does next: one pure function, the only place where such decisions are made.

The view holds ids and states, no bodies. The decision is applied by `pai.engine.advance` in the transaction that asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from pai.protocol.state import FinishReason, RunStatus
from pai.store.tables import StepKind, StepState


class Phase(StrEnum):
    """Where a run is: before its first model step, in its model and tool steps, or in its closing hook."""

    start = "start"
    model = "model"
    finish = "finish"


class RunHook(StrEnum):
    on_run_start = "on_run_start"
    on_run_finish = "on_run_finish"


class SideHook(StrEnum):
    """Hooks that go on beside the run: nothing waits for them, and they decide nothing."""

    on_action_pending = "on_action_pending"
    on_run_cancelled = "on_run_cancelled"
    thread_title = "title"
    reasoning_summary = "summary"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the latest model step. `outside`: its output comes as an action, nobody executes it."""

    tool_call_id: str
    settled: bool
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The latest model step, once its model call has ended.

    `reason`: why it ended; `suspended` means that the provider paused and is to be called again at once.
    """

    reason: FinishReason | Literal["suspended"]
    calls: Sequence[Call] = ()


@dataclass(frozen=True, slots=True)
class LiveStep:
    step_id: str
    kind: StepKind
    state: StepState
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run that runs or waits. `failed`: its error is recorded. `outcome`: why it ends, once that is decided."""

    run_id: str
    phase: Phase = Phase.start
    model_steps: int = 0
    max_steps: int = 50
    turn: Turn | None = None
    failed: bool = False
    outcome: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    queue_item_id: str
    run_id: str
    mode: Literal["queue", "steer"]


@dataclass(frozen=True, slots=True)
class ThreadView:
    """`steps` are the live steps of the current run, `queue` is in the order of arrival, `hooks` are those declared."""

    run: CurrentRun | None = None
    steps: Sequence[LiveStep] = ()
    queue: Sequence[Queued] = ()
    hooks: frozenset[RunHook] = frozenset()


@dataclass(frozen=True, slots=True)
class NewStep:
    """`outside`: a tool step that nobody executes; it is suspended until its output comes as an action."""

    kind: StepKind
    run_id: str
    tool_call_id: str | None = None
    hook: RunHook | None = None
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order: supersede calls, close the turn's message, end or keep the run, admit, create steps.

    `status`, `phase` and `outcome` are those of the current run; None leaves them as they are.
    """

    superseded: Sequence[str] = ()
    close_turn: bool = False
    status: RunStatus | None = None
    phase: Phase | None = None
    outcome: FinishReason | None = None
    admit: str | None = None
    steps: Sequence[NewStep] = field(default=())


def next_in_turn(queue: Sequence[Queued]) -> Queued | None:
    """Steer items first, then queue items, each first in, first out."""
    return next((item for item in queue if item.mode == "steer"), None) or next(iter(queue), None)


def plan(view: ThreadView) -> Plan:
    """Decide what runs next."""
    run = view.run
    if run is None:
        return _admission(view, Plan())
    if any(step.state in (StepState.pending, StepState.running) for step in view.steps):
        return Plan(status=RunStatus.running, steps=_unstarted(view, run))
    if run.failed:
        return _ending(view, run, Plan(close_turn=run.turn is not None))
    match run.phase:
        case Phase.start:
            return Plan(status=RunStatus.running, steps=[_first_step(view, run.run_id)])
        case Phase.finish:
            return _admission(view, Plan(status=RunStatus.completed))
    if run.turn is None:
        return Plan(status=RunStatus.running, steps=[NewStep(StepKind.model, run.run_id)])
    return _after_turn(view, run, run.turn)


def _after_turn(view: ThreadView, run: CurrentRun, turn: Turn) -> Plan:
    steering = any(item.mode == "steer" for item in view.queue)
    unstarted = _unstarted(view, run)
    if not all(step.outside for step in unstarted):
        return Plan(status=RunStatus.running, steps=unstarted)
    if open_calls := [call.tool_call_id for call in turn.calls if not call.settled]:
        if not steering:
            return Plan(status=RunStatus.waiting, steps=unstarted)
        return _ending(view, run, Plan(superseded=open_calls, close_turn=True, outcome="steered"))
    if not turn.calls and turn.reason != "suspended":
        return _ending(view, run, Plan(close_turn=True, outcome=turn.reason))
    if steering:
        return _ending(view, run, Plan(close_turn=True, outcome="steered"))
    if run.model_steps >= run.max_steps:
        return _ending(view, run, Plan(close_turn=True, outcome="max-steps"))
    return Plan(close_turn=True, status=RunStatus.running, steps=[NewStep(StepKind.model, run.run_id)])


def _unstarted(view: ThreadView, run: CurrentRun) -> list[NewStep]:
    """Steps for the open calls that have none yet."""
    if run.turn is None or run.phase is not Phase.model:
        return []
    started = {step.tool_call_id for step in view.steps}
    return [
        NewStep(StepKind.tool, run.run_id, tool_call_id=call.tool_call_id, outside=call.outside)
        for call in run.turn.calls
        if not call.settled and call.tool_call_id not in started
    ]


def _ending(view: ThreadView, run: CurrentRun, so_far: Plan) -> Plan:
    """The run is over: its closing hook first, when there is one; else it ends and the next is admitted."""
    if RunHook.on_run_finish in view.hooks and run.phase is not Phase.finish:
        hook = NewStep(StepKind.hook, run.run_id, hook=RunHook.on_run_finish)
        return replace(so_far, status=RunStatus.running, phase=Phase.finish, steps=[hook])
    return _admission(view, replace(so_far, status=RunStatus.failed if run.failed else RunStatus.completed))


def _admission(view: ThreadView, so_far: Plan) -> Plan:
    item = next_in_turn(view.queue)
    if item is None:
        return so_far
    return replace(so_far, admit=item.queue_item_id, steps=[_first_step(view, item.run_id)])


def _first_step(view: ThreadView, run_id: str) -> NewStep:
    if RunHook.on_run_start in view.hooks:
        return NewStep(StepKind.hook, run_id, hook=RunHook.on_run_start)
    return NewStep(StepKind.model, run_id)
