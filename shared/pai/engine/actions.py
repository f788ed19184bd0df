"""Answers to pending actions: a resume payload re-enters the tool, an output becomes the tool's output.

Everything is checked before anything changes, the first answer wins, and each is applied to exactly the call it names.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from pai.contract import Tool
from pai.engine import receipts, records
from pai.engine.advance import advance, pending_actions, steps_of_calls
from pai.engine.closing import call_failed, own_calls
from pai.engine.content import check_size, checked_context, stored_tool
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.fold.reserved import Reserved, SuspensionState, resolved_suspension
from pai.protocol.errors import ActionNotPending, NotFound, ValidationFailed
from pai.protocol.parts import tool_name
from pai.protocol.requests import ActionRequest, CancelResponse, FailResponse, MutationResult, SubmitResponse
from pai.protocol.state import ErrorCode
from pai.protocol.times import iso
from pai.protocol.tool_parts import is_settled
from pai.store.tables import EffectState, Message, Run, Step, StepState, StepTable, table_of

_STEP = table_of(StepTable)

CANCELLED_TEXT = "The request was dismissed without an answer."


@dataclass(slots=True)
class _Action:
    run: Run
    message: Message
    part: dict[str, Any]
    step: Step
    suspension: dict[str, Any] | None


async def respond(
    runtime: Runtime, caller: Caller, thread_id: str, request: ActionRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Settles one pending action.

    Dismissing or failing a call needs no declaration; a payload is checked against it, so without one there is none.
    Raises ValidationFailed (the payload; the action stays pending), NotFound, ActionNotPending, IdempotencyConflict.
    The same `response_id` gets the first answer again.
    """
    content = request.wire()
    response_hash = receipts.request_hash("respond", {"ref": content["ref"], "response": content["response"]})
    context = checked_context(runtime, caller.agent, client_data=request.client_data, client_tools=request.client_tools)

    async def decide(tx: ThreadTransaction) -> MutationResult:
        action = await _find(tx, request)
        _answer(tx, action, request)
        if context:
            tx.update(action.run, **context)
        await advance(tx)
        return MutationResult(
            run=records.run_state(action.run, thread_id=thread_id), version=tx.version, revision=tx.revision
        )

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MutationResult,
        key=key,
        request_hash=receipts.request_hash(f"respond {thread_id}", content),
        decide=decide,
        named=receipts.Named(receipts.RESPONSE, request.response_id, response_hash),
        run_id=request.ref.run_id,
        message_id=request.ref.message_id,
        tool_call_id=request.ref.tool_call_id,
    )


async def _find(tx: ThreadTransaction, request: ActionRequest) -> _Action:
    """The action that the reference names exactly. Raises NotFound, ActionNotPending."""
    ref = request.ref
    run = await tx.run(ref.run_id)
    message = await tx.message(ref.message_id) if run is not None else None
    if run is None or message is None or message.run_id != run.run_id:
        raise NotFound("action")
    content = tx.fold(message).message
    named = ref.wire()
    pending = await pending_actions(tx, run, content)
    part = next((part for part in own_calls(content["parts"]) if part["toolCallId"] == ref.tool_call_id), None)
    if part is None:
        raise NotFound("action")
    if named not in pending or run.run_id != tx.thread.current_run_id:
        raise await _not_pending(tx, run, content, part, named)
    step = (await steps_of_calls(tx, ref.message_id)).get(ref.tool_call_id)
    if step is None or step.state != StepState.suspended:
        raise NotFound("action")
    suspension = next(
        (entry for entry in content["parts"] if entry["type"] == Reserved.SUSPENSION and entry["id"] == ref.action_id),
        None,
    )
    return _Action(run, message, part, step, suspension)


async def _not_pending(
    tx: ThreadTransaction, run: Run, content: dict[str, Any], part: dict[str, Any], named: dict[str, Any]
) -> Exception:
    """ActionNotPending for an action that was; NotFound for what never was one."""
    name, call_id = tool_name(part), part["toolCallId"]
    same = {
        "kind": "tool",
        "threadId": tx.thread.thread_id,
        "toolName": name,
        "messageId": content["id"],
        "toolCallId": call_id,
        "runId": run.run_id,
    }
    for entry in content["parts"]:
        if entry["type"] == Reserved.SUSPENSION and entry["data"]["toolCallId"] == call_id:
            suspend = entry["data"]["name"]
            once = {**same, "suspendName": suspend, "actionId": entry["id"], "name": f"{name}.{suspend}"}
            if once == named:
                superseded = entry["data"].get("reason") == ErrorCode.superseded
                return ActionNotPending(ErrorCode.superseded.value if superseded else entry["data"]["state"])
    output = {**same, "actionId": call_id, "name": f"{name}.output"}
    if output == named and is_settled(part) and await _ran_outside(tx, run, content["id"], call_id):
        return ActionNotPending(part["state"])
    return NotFound("action")


async def _ran_outside(tx: ThreadTransaction, run: Run, message_id: str, call_id: str) -> bool:
    query = select(_STEP).where(
        _STEP.c.version == tx.version,
        _STEP.c.run_id == run.run_id,
        _STEP.c.message_id == message_id,
        _STEP.c.tool_call_id == call_id,
    )
    return any(Step.of(row).outside for row in (await tx.connection.execute(query)).mappings())


def _answer(tx: ThreadTransaction, action: _Action, request: ActionRequest) -> None:
    match request.response:
        case SubmitResponse(payload=payload):
            _submit(tx, action, payload)
        case CancelResponse(reason=reason):
            _fail(tx, action, ErrorCode.cancelled, text=reason or CANCELLED_TEXT, reason=reason)
        case FailResponse(error=error):
            check_size(tx.runtime, error.detail, at="response.error.detail")
            detail = {} if error.detail is None else {"detail": error.detail}
            state = SuspensionState.FAILED
            _fail(tx, action, error.code or ErrorCode.failed, text=error.message, state=state, **detail)


def _submit(tx: ThreadTransaction, action: _Action, payload: Any) -> None:
    check_size(tx.runtime, payload, at="response.payload")
    tool = _tool(tx, action)
    call_id = action.part["toolCallId"]
    if action.suspension is None:
        tool.validate_output(payload, at="response.payload")
        tx.apply(action.message, {"type": "tool-output-available", "toolCallId": call_id, "output": payload})
        tx.end_step(action.step, StepState.done)
        return
    declared = tool.suspensions.get(action.suspension["data"]["name"])
    if declared is None:
        raise ValidationFailed.at("ref.suspendName", "the tool does not declare this suspension any more")
    declared.validate_resume(payload, at="response.payload")
    resumed = resolved_suspension(
        action.suspension, state=SuspensionState.RESUMED, resolved_at=iso(tx.now), resume=payload
    )
    tx.apply(action.message, resumed)
    if tx.asked is None or tx.asked.step_id != action.step.step_id:
        raise NotFound("action")
    tx.update(tx.asked, state=EffectState.resumed, value={**tx.asked.value, "payload": payload})
    tx.put_to_work(action.step)


def _tool(tx: ThreadTransaction, action: _Action) -> Tool:
    name = tool_name(action.part)
    if (tool := tx.agent.tools.get(name)) is not None:
        return tool
    if (snapshot := action.run.seen_tools.get(name)) is None:
        raise ValidationFailed.at("ref.toolName", "the agent does not declare this tool any more")
    return stored_tool(snapshot)


def _fail(tx: ThreadTransaction, action: _Action, code: ErrorCode | str, *, text: str, **how: Any) -> None:
    parts = tx.fold(action.message).message["parts"]
    tx.apply(action.message, *call_failed(parts, action.part["toolCallId"], code, now=tx.now, text=text, **how))
    tx.end_step(action.step, StepState.cancelled)
