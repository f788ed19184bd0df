"""Whether a tool part waits for something from outside: by exact message, call and suspension."""

from collections.abc import Awaitable, Callable

from pai.client.actions import ActionOrigin, PendingActionView, Response, action_ref
from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage, PaiMessage
from pai.client.records import RunState
from pai.client.reducer import Reducer
from pai.client.thread_state import ActionResult
from pai.client.tool_parts import PaiDynamicToolPart, PaiToolPart, ToolState
from pai.contract.tool import ToolKind
from pai.protocol.requests import PendingActionRef
from pai.protocol.state import RunStatus

Respond = Callable[[PendingActionRef, Response], Awaitable[ActionResult]]


def find_pending_action(
    reducer: Reducer, binding: Binding, message: PaiMessage, part: PaiToolPart, *, respond: Respond
) -> PendingActionView | None:
    """None when the message or the part is stale, belongs to an ended run, or waits for nothing."""
    if not isinstance(message, PaiCanonicalMessage):
        return None
    run_id = message.metadata.pai.run_id
    run = None if run_id is None else reducer.run(run_id)
    current = _current(reducer, message.id, part.tool_call_id)
    if run is None or run.status.terminal or current is None or current.state.settled:
        return None
    shown, pending = part.pending_suspension, current.pending_suspension
    if pending is None:
        if shown is not None or not _waits_for_output(reducer, current, run, binding):
            return None
        action_id, suspend_name, given = current.tool_call_id, None, current.input
    else:
        if shown is None or shown.suspension_id != pending.suspension_id:
            return None
        action_id, suspend_name, given = pending.suspension_id, pending.name, pending.input
    origin = ActionOrigin(
        thread_id=reducer.thread_id,
        tool_name=current.tool_name,
        suspend_name=suspend_name,
        message_id=message.id,
        tool_call_id=current.tool_call_id,
        run_id=run.run_id,
    )
    ref = action_ref(origin, action_id=action_id)
    return PendingActionView(name=ref.name, input=given, origin=origin, ref=ref, _respond=respond)


def _current(reducer: Reducer, message_id: str, tool_call_id: str) -> PaiToolPart | None:
    message = reducer.message(message_id)
    if message is None:
        return None
    calls = [part for part in message.parts if isinstance(part, PaiToolPart) and part.tool_call_id == tool_call_id]
    return calls[-1] if calls else None


def _waits_for_output(reducer: Reducer, part: PaiToolPart, run: RunState, binding: Binding) -> bool:
    """Only tools that nothing here executes wait for an output.

    The contract or the manifest says which those are, and a tool that came with a request is dynamic. Without both, it
    is those that have no output once the run waits for anything from outside, because then no tool of the server's runs
    any more. That is one too many when a tool of the server's waits for another thread at the same time.
    """
    if part.state is not ToolState.input_available or part.provider_executed:
        return False
    if isinstance(part, PaiDynamicToolPart):
        return True
    kind = binding.tool_kind(part.tool_name)
    if kind is None:
        return run.status is RunStatus.waiting and reducer.capabilities.can_respond_to_actions
    return kind is not ToolKind.server
