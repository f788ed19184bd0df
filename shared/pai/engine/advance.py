"""Asks the plan what a thread does next and applies the answer, inside the transaction that changed the thread."""

from datetime import timedelta
from typing import Any, cast

from pai.contract import Agent, ToolKind
from pai.engine.closing import call_failed, message_finished, own_calls
from pai.engine.plan import (
    Call,
    CurrentRun,
    LiveStep,
    NewStep,
    Phase,
    Plan,
    Queued,
    RunHook,
    SideHook,
    ThreadView,
    Turn,
    plan,
)
from pai.engine.relatives import child_ended, stop_children
from pai.engine.transaction import ThreadTransaction
from pai.fold.reserved import Reserved, SuspensionState
from pai.protocol.ids import new_id
from pai.protocol.parts import tool_name
from pai.protocol.state import ErrorCode, RunStatus, ThreadStatus
from pai.protocol.times import iso
from pai.protocol.tool_parts import is_settled
from pai.store.tables import QueueItem, Run, Step, StepKind, StepState


async def advance(tx: ThreadTransaction) -> Plan:
    """The last call of every decision: what runs next is created, the thread's status is brought up to date."""
    decided = plan(await view(tx))
    run = await tx.current_run()
    if run is not None:
        await _apply_to_run(tx, run, decided)
    if decided.admit is not None:
        await _admit(tx, decided.admit)
    for step in decided.steps:
        await _create_step(tx, step)
    await _update_status(tx)
    await _update_actions(tx)
    return decided


async def view(tx: ThreadTransaction) -> ThreadView:
    """What the plan may know: ids and states of the current run, its latest turn, its live steps and the queue."""
    queue = [Queued(item.queue_item_id, item.run_id, cast(Any, item.mode)) for item in await tx.queue()]
    run = await tx.current_run()
    hooks = declared_hooks(tx.agent)
    if run is None:
        return ThreadView(queue=queue, hooks=hooks)
    steps = [
        LiveStep(step.step_id, StepKind(step.kind), StepState(step.state), step.tool_call_id)
        for step in await tx.live_steps()
        if step.run_id == run.run_id and not is_side_step(step)
    ]
    return ThreadView(
        run=CurrentRun(
            run_id=run.run_id,
            phase=Phase(run.phase),
            model_steps=run.model_steps,
            max_steps=tx.agent.max_steps,
            turn=await _turn(tx, run),
            failed=run.error is not None,
            outcome=cast(Any, run.finish_reason),
        ),
        steps=steps,
        queue=queue,
        hooks=hooks,
    )


def is_side_step(step: Step) -> bool:
    """Hook steps that go on beside the run and that nothing waits for."""
    return step.kind == StepKind.hook and step.name in set(SideHook)


def declared_hooks(agent: Agent) -> frozenset[RunHook]:
    return frozenset(hook for hook in RunHook if agent.hook(hook) is not None)


def runs_outside(agent: Agent, run: Run, name: str) -> bool:
    """Whether a tool's output comes as an action: client tools, external tools, and tools sent with the request.

    A call that has a step already goes by its step, whatever has been declared since then.
    """
    tool = agent.tools.get(name)
    return name in run.seen_tools if tool is None else tool.kind is not ToolKind.server


async def _turn(tx: ThreadTransaction, run: Run) -> Turn | None:
    if run.turn_reason is None or run.message_id is None:
        return None
    message = await tx.message(run.message_id)
    if message is None:
        return None
    steps = await steps_of_calls(tx, message.message_id)
    calls = []
    for part in own_calls(tx.fold(message).message["parts"]):
        call_id, name = part["toolCallId"], tool_name(part)
        step = steps.get(call_id)
        outside = runs_outside(tx.agent, run, name) if step is None else step.outside
        calls.append(Call(call_id, is_settled(part), outside))
    return Turn(cast(Any, run.turn_reason), calls)


async def steps_of_calls(tx: ThreadTransaction, message_id: str) -> dict[str, Step]:
    """The live steps of a message's calls."""
    return {
        step.tool_call_id: step
        for step in await tx.live_steps()
        if step.kind == StepKind.tool and step.message_id == message_id and step.tool_call_id is not None
    }


async def _apply_to_run(tx: ThreadTransaction, run: Run, decided: Plan) -> None:
    message = await tx.message(run.message_id) if run.message_id is not None and decided.close_turn else None
    if message is not None and message.open:
        for call_id in decided.superseded:
            tx.apply(
                message, *call_failed(tx.fold(message).message["parts"], call_id, ErrorCode.superseded, now=tx.now)
            )
        superseded = [step for step in await tx.live_steps() if step.tool_call_id in decided.superseded]
        if superseded:
            await stop_children(tx, step_ids=[step.step_id for step in superseded])
        for step in superseded:
            tx.end_step(step, StepState.cancelled)
        tx.apply(message, *message_finished(run.turn_reason or "other", now=tx.now))
        tx.update(message, open=False)
    if decided.phase is not None:
        tx.update(run, phase=decided.phase)
    if decided.outcome is not None:
        tx.update(run, finish_reason=decided.outcome)
    if decided.status is None or decided.status == run.status:
        return
    tx.update(run, status=decided.status)
    if decided.status.terminal:
        await end_run(tx, run)


async def end_run(tx: ThreadTransaction, run: Run) -> None:
    """Records that the current run is over (its status is set already) and frees the thread."""
    for step in await tx.live_steps():
        if step.run_id == run.run_id and not is_side_step(step):
            tx.end_step(step, StepState.cancelled)
    tx.update(run, completed_at=tx.now)
    error = None
    if run.status == RunStatus.failed and run.error is not None:
        error = {**run.error, "runId": run.run_id, "at": iso(tx.now)}
    if tx.thread.error != error:
        tx.update(tx.thread, error=error)
    tx.update(tx.thread, current_run_id=None, listed_at=tx.now)
    await child_ended(tx, run)


async def _admit(tx: ThreadTransaction, queue_item_id: str) -> None:
    item = next(item for item in await tx.queue() if item.queue_item_id == queue_item_id)
    await tx.take_queue_item(item)
    run = await tx.run(item.run_id)
    if run is None:
        raise RuntimeError(f"Queued run {item.run_id} is missing.")
    await admit_messages(tx, run, item)
    tx.update(run, status=RunStatus.running, started_at=tx.now)
    tx.update(tx.thread, current_run_id=run.run_id)
    if tx.thread.error is not None:
        tx.update(tx.thread, error=None)


async def admit_messages(tx: ThreadTransaction, run: Run, item: QueueItem) -> None:
    for message in item.messages:
        tx.add_message(
            message["id"],
            run_id=run.run_id,
            role=message["role"],
            facts={
                "producer": message["metadata"]["pai"]["producer"],
                "runId": run.run_id,
                "relation": "input",
                "status": "committed",
            },
            meta={key: value for key, value in message["metadata"].items() if key != "pai"},
            parts=message["parts"],
        )


async def _create_step(tx: ThreadTransaction, new: NewStep) -> None:
    run = await tx.run(new.run_id)
    if run is None:
        raise RuntimeError(f"Run {new.run_id} is missing.")
    queue = tx.agent.queue or tx.runtime.settings.default_queue
    match new.kind:
        case StepKind.model:
            message = tx.add_message(
                new_id("msg"),
                run_id=run.run_id,
                role="assistant",
                facts={"producer": "model", "runId": run.run_id, "relation": "output", "status": "open"},
                open=True,
            )
            tx.update(
                run,
                phase=Phase.model,
                model_steps=run.model_steps + 1,
                message_id=message.message_id,
                turn_reason=None,
            )
            tx.add_step(
                StepKind.model,
                run_id=run.run_id,
                queue=queue,
                message_id=message.message_id,
                timeout_ms=_milliseconds(2 * tx.runtime.settings.model_deadline),
            )
        case StepKind.tool:
            await _create_tool_step(tx, run, new, queue=queue)
        case StepKind.hook:
            timeout = _milliseconds(tx.runtime.settings.tool_timeout)
            tx.add_step(StepKind.hook, run_id=run.run_id, queue=queue, name=new.hook, timeout_ms=timeout)


async def _create_tool_step(tx: ThreadTransaction, run: Run, new: NewStep, *, queue: str) -> None:
    name = await _called_tool(tx, run, new.tool_call_id or "")
    tool = tx.agent.tools.get(name)
    call: dict[str, Any] = {"message_id": run.message_id, "tool_call_id": new.tool_call_id, "name": name}
    if tool is None or new.outside:
        timeout = None if tool is None or tool.timeout is None else _milliseconds(tool.timeout)
        tx.add_suspended_step(run_id=run.run_id, queue=queue, ends_in_ms=timeout, **call)
        return
    tx.add_step(
        StepKind.tool,
        run_id=run.run_id,
        queue=tool.queue or queue,
        max_attempts=tool.max_attempts,
        timeout_ms=_milliseconds(tool.timeout or tx.runtime.settings.tool_timeout),
        **call,
    )


def add_side_step(tx: ThreadTransaction, hook: SideHook, *, run_id: str, **call: Any) -> None:
    """Creates a step that goes on beside the run."""
    settings = tx.runtime.settings
    queue = tx.agent.queue or settings.default_queue
    timeout = _milliseconds(settings.tool_timeout)
    tx.add_step(StepKind.hook, run_id=run_id, queue=queue, name=hook, timeout_ms=timeout, **call)


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


async def _called_tool(tx: ThreadTransaction, run: Run, tool_call_id: str) -> str:
    message = await tx.message(run.message_id or "")
    if message is None:
        raise RuntimeError(f"Message {run.message_id} is missing.")
    part = next(part for part in own_calls(tx.fold(message).message["parts"]) if part["toolCallId"] == tool_call_id)
    return tool_name(part)


async def _update_status(tx: ThreadTransaction) -> None:
    run = await tx.current_run()
    if run is None:
        status = ThreadStatus.idle
    else:
        status = ThreadStatus.waiting if run.status == RunStatus.waiting else ThreadStatus.running
    if tx.thread.status != status:
        tx.update(tx.thread, status=status)


async def _update_actions(tx: ThreadTransaction) -> None:
    """Keeps the references of the pending actions on the thread's row, where sends, snapshots and lists find them."""
    run = await tx.current_run()
    actions: list[dict[str, Any]] = []
    if run is not None and run.turn_reason is not None and run.message_id is not None:
        message = await tx.message(run.message_id)
        if message is not None:
            actions = await pending_actions(tx, run, tx.fold(message).message)
    if tx.thread.actions == actions:
        return
    known = {ref["actionId"] for ref in tx.thread.actions}
    tx.update(tx.thread, actions=actions)
    if run is not None and tx.agent.hook("on_action_pending") is not None:
        for ref in actions:
            if ref["actionId"] not in known:
                call = {"tool_call_id": ref["toolCallId"], "message_id": ref["messageId"]}
                add_side_step(tx, SideHook.on_action_pending, run_id=run.run_id, **call)


async def pending_actions(tx: ThreadTransaction, run: Run, message: dict[str, Any]) -> list[dict[str, Any]]:
    """The references of the actions that a message's unsettled calls wait for, in the order of the calls."""
    steps = await steps_of_calls(tx, message["id"])
    suspended = {
        part["data"]["toolCallId"]: part
        for part in message["parts"]
        if part["type"] == Reserved.SUSPENSION and part["data"]["state"] == SuspensionState.PENDING
    }
    refs = []
    for part in own_calls(message["parts"]):
        if is_settled(part):
            continue
        name, call_id = tool_name(part), part["toolCallId"]
        ref = {"kind": "tool", "threadId": tx.thread.thread_id, "toolName": name}
        rest = {"messageId": message["id"], "toolCallId": call_id, "runId": run.run_id}
        if (suspension := suspended.get(call_id)) is not None:
            suspend = suspension["data"]["name"]
            refs.append(
                {**ref, "suspendName": suspend, **rest, "actionId": suspension["id"], "name": f"{name}.{suspend}"}
            )
        elif call_id in steps and steps[call_id].outside:
            refs.append({**ref, **rest, "actionId": call_id, "name": f"{name}.output"})
    return refs
