"""Messages as trusted callers handle them: added without a run, looked up with what is private, shown and hidden."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, func, select

from pai.engine import receipts, records
from pai.engine.content import check_part, checked_metadata
from pai.engine.locked import NAMED
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import SHOWN, ThreadTransaction
from pai.log.entries import ResetReason
from pai.protocol.errors import MessageConflict, NotFound, ThreadBusy, TooLarge, ValidationFailed
from pai.protocol.ids import is_id, new_id
from pai.protocol.json import dumps
from pai.protocol.messages import MessagesInvalid, validate_messages
from pai.protocol.parts import is_tool_part
from pai.protocol.requests import MutationResult
from pai.protocol.text import clean
from pai.protocol.tool_parts import is_settled
from pai.protocol.trusted import (
    AppendMessageRequest,
    LifecycleMessage,
    LifecycleMessages,
    LookUpMessagesRequest,
    VisibilityRequest,
)
from pai.store.tables import Message, MessageTable, ThreadTable, table_of

_THREAD, _MESSAGE = table_of(ThreadTable), table_of(MessageTable)
_VERSION = select(_THREAD.c.version).where(*NAMED)
_NAMED = select(_MESSAGE).where(
    _MESSAGE.c.version == bindparam("version"), _MESSAGE.c.message_id.in_(bindparam("ids", expanding=True))
)
_LAST_SHOWN = select(func.max(_MESSAGE.c.position)).where(
    _MESSAGE.c.version == bindparam("version"), _MESSAGE.c.visibility.in_(SHOWN)
)
_RESERVED = "data-pai-"


async def append_message(
    runtime: Runtime, caller: Caller, thread_id: str, request: AppendMessageRequest, *, key: str | None = None
) -> Reply[LifecycleMessage]:
    """Adds a message that belongs to no run, at the end.

    Also while a run works: the message stands behind the step under way, whose model does not see it, and before the
    next one, whose model does; a step's calls and their results are in one message, so nothing comes between them. What
    comes while a provider pauses its turn is given to models as if it had come before that turn.
    Idempotent by its message id. Raises Forbidden, NotFound, ValidationFailed, TooLarge, MessageConflict,
    IdempotencyConflict.
    """
    caller.require_trust()
    message_id = request.message_id or new_id("msg")
    message = request.message
    parts = _checked_parts(runtime, message_id, request)
    meta = checked_metadata(caller.agent.message_metadata, clean(message.metadata or {}), at="message.metadata")
    content_hash = receipts.request_hash("append", request.wire())

    async def decide(tx: ThreadTransaction) -> LifecycleMessage:
        queued = [waiting["id"] for item in await tx.queue() for waiting in item.messages]
        if await tx.message(message_id) is not None or message_id in queued:
            raise MessageConflict
        row = tx.add_message(
            message_id,
            run_id=None,
            role=message.role,
            facts={"producer": "admin", "status": "committed"},
            meta=meta,
            parts=parts,
            visibility=request.visibility,
            private_meta=clean(request.private_metadata or {}),
        )
        return _lifecycle_message(row)

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=LifecycleMessage,
        key=key,
        request_hash=receipts.request_hash(f"append {thread_id}", request.wire()),
        decide=decide,
        named=receipts.Named(receipts.MESSAGE, request.message_id, content_hash),
    )


def _checked_parts(runtime: Runtime, message_id: str, request: AppendMessageRequest) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = clean(request.message.parts)
    limit = runtime.settings.max_message_bytes
    if len(dumps(parts)) > limit:
        raise TooLarge("The message is too large.", limit_bytes=limit)
    role = request.message.role
    try:
        [checked] = validate_messages([{"id": message_id, "role": role, "parts": parts}])
    except MessagesInvalid as error:
        raise ValidationFailed.at(f"message.{error.path.removeprefix('0.')}", error.message) from None
    for index, part in enumerate(checked["parts"]):
        if (fault := _fault(part, role)) is not None:
            raise ValidationFailed.at(f"message.parts.{index}", fault)
        check_part(part, at=f"message.parts.{index}")
    found: list[dict[str, Any]] = checked["parts"]
    return found


def _fault(part: dict[str, Any], role: str) -> str | None:
    """Why a part cannot stand in a message that is complete."""
    if part["type"].startswith(_RESERVED):
        return "this type is reserved"
    if is_tool_part(part):
        if role != "assistant":
            return "only an assistant's message holds tool calls"
        return None if is_settled(part) else "a tool call needs its result"
    return "is still streaming" if part.get("state") == "streaming" else None


async def get_messages(
    runtime: Runtime, caller: Caller, thread_id: str, request: LookUpMessagesRequest
) -> LifecycleMessages:
    """Messages by id, whoever sees them, with their private metadata. Raises Forbidden, NotFound (thread)."""
    caller.require_trust()
    if not is_id(thread_id):
        raise NotFound("thread")
    names = caller.names(thread_id)
    async with runtime.store.read() as connection:
        row = (await connection.execute(_VERSION, names)).first()
        if row is None:
            raise NotFound("thread")
        wanted = {"version": row.version, "ids": list(request.message_ids)}
        rows = (await connection.execute(_NAMED, wanted)).mappings()
        found = {message.message_id: message for message in map(Message.of, rows)}
    asked = dict.fromkeys(request.message_ids)
    return LifecycleMessages(messages=[_lifecycle_message(found[name]) for name in asked if name in found])


async def set_visibility(
    runtime: Runtime, caller: Caller, thread_id: str, request: VisibilityRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Says who sees messages: all of them, or none when one does not exist.

    Watchers see a message go, or come back; one that comes back before others makes them take a snapshot, because an
    update can only append. The next model step obeys. Raises Forbidden, NotFound, ThreadBusy (a message that is still
    open), IdempotencyConflict.
    """
    caller.require_trust()
    message_ids = list(dict.fromkeys(request.message_ids))

    async def decide(tx: ThreadTransaction) -> MutationResult:
        messages = [await _committed(tx, message_id) for message_id in message_ids]
        if request.visibility in SHOWN:
            await _reorder(tx, [message for message in messages if message.visibility not in SHOWN])
        for message in messages:
            if message.visibility != request.visibility:
                tx.set_visibility(message, request.visibility)
        return MutationResult(message_ids=message_ids, version=tx.version, revision=tx.revision)

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MutationResult,
        key=key,
        request_hash=receipts.request_hash(f"visibility {thread_id}", request.wire()),
        decide=decide,
    )


async def _committed(tx: ThreadTransaction, message_id: str) -> Message:
    message = await tx.message(message_id)
    if message is None:
        raise NotFound("message")
    if message.open:
        # A model step may be publishing it at this moment.
        active = records.active_run_id(tx.thread)
        raise ThreadBusy(tx.thread.status, active_run_id=active, pending_actions=tx.thread.actions)
    return message


async def _reorder(tx: ThreadTransaction, returning: Sequence[Message]) -> None:
    """Has watchers take a snapshot when messages return in front of others."""
    if not returning:
        return
    last: int | None = (await tx.connection.execute(_LAST_SHOWN, {"version": tx.version})).scalar_one()
    if last is not None and any(message.position < last for message in returning):
        tx.update(tx.thread, log_epoch=tx.thread.log_epoch + 1)
        tx.opening_reason = ResetReason.ORDER


def _lifecycle_message(message: Message) -> LifecycleMessage:
    return LifecycleMessage.read(
        {
            **records.message_record(message),
            "visibility": message.visibility,
            "privateMetadata": message.private_meta,
        }
    )
