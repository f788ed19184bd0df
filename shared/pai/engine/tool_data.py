"""Tool data that a client writes: the latest value per call and name, while the call is open."""

from pai.engine import receipts, records
from pai.engine.advance import advance
from pai.engine.closing import own_calls
from pai.engine.content import check_size, checked_context, stored_tool
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.fold.reserved import tool_data
from pai.protocol.errors import CallSettled, Forbidden, NotFound, ValidationFailed
from pai.protocol.parts import tool_name
from pai.protocol.requests import MutationResult, ToolDataRequest
from pai.protocol.tool_parts import is_settled


async def write_tool_data(
    runtime: Runtime, caller: Caller, thread_id: str, request: ToolDataRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Raises NotFound, CallSettled, Forbidden (not `client_writable`), ValidationFailed, IdempotencyConflict."""
    context = checked_context(runtime, caller.agent, client_data=request.client_data, client_tools=request.client_tools)
    check_size(runtime, request.value, at="value")

    async def decide(tx: ThreadTransaction) -> MutationResult:
        message = await tx.message(request.message_id)
        run = None if message is None or message.run_id is None else await tx.run(message.run_id)
        if message is None or run is None:
            raise NotFound("message")
        if message.open and run.turn_reason is None:
            # The model step still streams and is the only writer of its message.
            raise NotFound("action", "The tool call is not complete yet.")
        calls = own_calls(tx.fold(message).message["parts"])
        part = next((part for part in calls if part["toolCallId"] == request.tool_call_id), None)
        if part is None:
            raise NotFound("action", "There is no such tool call in the message.")
        if is_settled(part) or not message.open:
            raise CallSettled
        name = tool_name(part)
        tool = tx.agent.tools.get(name)
        if tool is None and name in run.seen_tools:
            tool = stored_tool(run.seen_tools[name])
        declared = None if tool is None else tool.data.get(request.name)
        if declared is None:
            raise ValidationFailed.at("name", f"the tool {name} does not declare this tool data")
        if not declared.client_writable:
            raise Forbidden(f"The tool data {request.name} of {name} is not writable by clients.")
        declared.schema.parse(request.value, at="value")
        tx.apply(message, tool_data(request.tool_call_id, request.name, request.value))
        if context:
            tx.update(run, **context)
        await advance(tx)
        return MutationResult(run=records.run_state(run, thread_id=thread_id), version=tx.version, revision=tx.revision)

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MutationResult,
        key=key,
        request_hash=receipts.request_hash(f"tool-data {thread_id}", request.wire()),
        decide=decide,
        message_id=request.message_id,
    )
