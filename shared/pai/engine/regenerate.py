"""Regenerate: the thread goes back to an admitted input and runs again from there."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from pai.engine import receipts, records
from pai.engine.advance import advance
from pai.engine.content import checked_context, checked_metadata, user_parts
from pai.engine.limits import check_turn
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.fold.reserved import Reserved
from pai.protocol.errors import NotFound, RegenerateInvalid, ThreadBusy, ValidationFailed
from pai.protocol.ids import new_id
from pai.protocol.requests import MutationResult, RegenerateRequest
from pai.protocol.state import RunStatus, ThreadStatus
from pai.protocol.times import iso
from pai.store.tables import Message, MessageTable, QueueItem, Run, table_of

_MESSAGE = table_of(MessageTable)
_FROM = (
    select(_MESSAGE)
    .where(_MESSAGE.c.version == bindparam("version"), _MESSAGE.c.position >= bindparam("position"))
    .order_by(_MESSAGE.c.position)
)
_KEPT_WITH_TEXT = frozenset({"file", Reserved.ATTACHMENT.value})


@dataclass(slots=True)
class _Point:
    """Where the thread goes back to: the inputs that stay, and everything after the first of them that goes."""

    run: Run
    inputs: list[Message]
    removed: list[Message]


async def regenerate(
    runtime: Runtime, caller: Caller, thread_id: str, request: RegenerateRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Starts a new run from a user message (whose content `replacement` changes), or from a run's whole input.

    Everything after the input goes, with the runs that made it; their usage stays in the thread's total. Checked before
    anything changes. Raises ValidationFailed, NotFound, RegenerateInvalid, ThreadBusy, IdempotencyConflict.
    """
    if (request.message_id is None) == (request.run_id is None):
        raise ValidationFailed.at("messageId", "give either messageId or runId")
    if request.run_id is not None and request.replacement is not None:
        raise ValidationFailed.at("replacement", "only with messageId")
    context = checked_context(runtime, caller.agent, client_data=request.client_data, client_tools=request.client_tools)
    replacement: dict[str, Any] | None = None
    gone: NotFound | None = None
    if request.replacement is not None:
        given = request.replacement.metadata
        try:
            replacement = {"parts": await user_parts(runtime, caller, request.replacement)}
        except NotFound as error:
            replacement, gone = {}, error  # as in a send that is repeated
        if given is not None:
            replacement["meta"] = checked_metadata(caller.agent.message_metadata, given, at="replacement.metadata")

    async def decide(tx: ThreadTransaction) -> MutationResult:
        if gone is not None:
            raise gone
        if tx.thread.status != ThreadStatus.idle:
            active = records.active_run_id(tx.thread)
            raise ThreadBusy(tx.thread.status, active_run_id=active, pending_actions=tx.thread.actions)
        point = await _point(tx, request)
        await check_turn(tx, caller, may_queue=False)
        run = await _rewind(tx, point, replacement, context)
        await advance(tx)
        return MutationResult(
            run=records.run_state(run, thread_id=thread_id),
            message_ids=run.input_message_ids,
            version=tx.version,
            revision=tx.revision,
        )

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MutationResult,
        key=key,
        request_hash=receipts.request_hash(f"regenerate {thread_id}", request.wire()),
        decide=decide,
    )


async def _point(tx: ThreadTransaction, request: RegenerateRequest) -> _Point:
    if request.run_id is not None:
        run = await tx.run(request.run_id)
        if run is None:
            raise NotFound("run")
        inputs = run.input_message_ids or []
    else:
        message = await tx.message(request.message_id or "")
        if message is None:
            raise NotFound("message")
        run = None if message.run_id is None else await tx.run(message.run_id)
        if message.role != "user" or run is None or message.message_id not in (run.input_message_ids or []):
            raise RegenerateInvalid("Only a message that was sent can be regenerated from.")
        every = run.input_message_ids or []
        inputs = every[: every.index(message.message_id) + 1]
    first = await tx.message(inputs[0]) if inputs else None
    if first is None:
        raise RegenerateInvalid("The run has no input that was admitted.")
    rows = await tx.connection.execute(_FROM, {"version": tx.version, "position": first.position})
    messages = [Message.of(row) for row in rows.mappings()]
    kept = [message for message in messages if message.message_id in inputs]
    removed = [message for message in messages if message.message_id not in inputs]
    return _Point(run, kept, removed)


async def _rewind(
    tx: ThreadTransaction, point: _Point, replacement: dict[str, Any] | None, context: dict[str, Any]
) -> Run:
    run = Run(
        run_id=new_id("run"),
        version=tx.version,
        position=tx.position(),
        initiator="regenerate",
        mode="direct",
        status=RunStatus.queued,
        input_message_ids=[message.message_id for message in point.inputs],
        created_at=tx.now,
        meta=point.run.meta,
        private_meta=point.run.private_meta,
        client_data=point.run.client_data,
        client_tools=point.run.client_tools,
    )
    for name, value in context.items():
        setattr(run, name, value)
    for message in point.removed:
        await tx.remove_message(message)
    gone = {message.run_id for message in point.removed} | {point.run.run_id}
    await tx.remove_runs([run_id for run_id in gone if run_id is not None])
    for message in point.inputs:
        last = message is point.inputs[-1]
        changes = replacement if last and replacement is not None else {}
        facts = {**message.meta["pai"], "runId": run.run_id, "updatedAt": iso(tx.now)}
        own = {name: value for name, value in message.meta.items() if name != "pai"}
        parts = changes.get("parts", message.parts)
        if changes and not any(part["type"] in _KEPT_WITH_TEXT for part in parts):
            parts = [*parts, *(part for part in message.parts if part["type"] in _KEPT_WITH_TEXT)]
        tx.replace_message(message, run_id=run.run_id, meta={**changes.get("meta", own), "pai": facts}, parts=parts)
    tx.insert(run)
    await tx.add_queue_item(
        QueueItem(
            queue_item_id=new_id("item"),
            version=tx.version,
            run_id=run.run_id,
            position=tx.position(),
            mode="queue",
            messages=[],
            created_at=tx.now,
        )
    )
    tx.update(tx.thread, listed_at=tx.now)
    return run
