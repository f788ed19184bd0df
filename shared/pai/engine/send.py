"""Send: a message enters a thread, which it creates on first use; what runs next is the plan's."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine import receipts, records
from pai.engine.advance import add_side_step, advance
from pai.engine.content import checked_context, checked_metadata, user_parts
from pai.engine.limits import check_turn
from pai.engine.opening import open_thread
from pai.engine.plan import SideHook
from pai.engine.publication import Publication
from pai.engine.relatives import ParentCall, begin_child, name_parent
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import NotFound, QueueFull, ThreadBusy, ValidationFailed
from pai.protocol.ids import ID_RULE, is_id, new_id
from pai.protocol.requests import MutationResult, SendRequest
from pai.protocol.state import RunStatus, ThreadStatus
from pai.protocol.times import iso
from pai.store.tables import MessageTable, QueueItem, QueueItemTable, Run, ThreadTable, table_of

_THREAD, _MESSAGE, _QUEUE = table_of(ThreadTable), table_of(MessageTable), table_of(QueueItemTable)

TITLE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an input comes from. `hidden` and `parent` are only read when the thread is created; `also` runs in the
    transaction."""

    initiator: Literal["send", "trigger"] = "send"
    hidden: bool = False
    parent: ParentCall | None = None
    also: Callable[[ThreadTransaction, MutationResult], Awaitable[None]] | None = None


async def send(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    request: SendRequest,
    *,
    key: str | None = None,
    origin: Origin = Origin(),
) -> Reply[MutationResult]:
    """Accepts one user message.

    Idempotent by its message id: the same content gets the recorded result. Raises ValidationFailed, MessageConflict,
    ThreadBusy (on a busy thread without `queue`), QueueFull, IdempotencyConflict.
    """
    if not is_id(thread_id):
        raise ValidationFailed.at("threadId", ID_RULE)
    # The message id names the request, so it counts for the hash of the key only.
    content = request.message.wire()
    content_hash = receipts.request_hash("send", content)
    asked = receipts.Request(
        key,
        receipts.request_hash(f"send {thread_id}", request.wire()),
        receipts.Named(receipts.MESSAGE, request.message_id, content_hash),
    )
    context = checked_context(runtime, caller.agent, client_data=request.client_data, client_tools=request.client_tools)
    message: dict[str, Any] = {
        "id": request.message_id or new_id("msg"),
        "role": "user",
        "metadata": checked_metadata(
            caller.agent.message_metadata, content.get("metadata") or {}, at="message.metadata"
        ),
    }
    gone: NotFound | None = None
    try:
        message["parts"] = await user_parts(runtime, caller, request.message)
    except NotFound as error:
        # Its file may have gone since this very message was sent: then the answer is that of the first time.
        gone = error
    thread_metadata = checked_metadata(
        caller.agent.thread_metadata, (request.thread and request.thread.metadata) or {}, at="thread.metadata"
    )

    async def work(connection: AsyncConnection) -> tuple[Reply[MutationResult], Publication | None]:
        version = None if origin.parent is None else origin.parent.version
        opened = await open_thread(connection, caller, thread_id, asked, message_id=request.message_id, version=version)
        if opened.recorded is not None:
            return Reply(MutationResult.read(opened.recorded), replayed=True), None
        thread, created = opened.thread, opened.created
        if gone is not None:
            raise gone
        tx = ThreadTransaction(runtime, connection, thread, created=created)
        if created:
            await _describe(tx, request, metadata=thread_metadata, message=message, origin=origin)
        if origin.initiator == "send" and origin.parent is None:
            await check_turn(tx, caller, may_queue=request.queue is not None)
        answer = await _accept(tx, request, message, context, initiator=origin.initiator)
        if created and thread.title is None and tx.agent.thread_titles not in (None, "first_words"):
            add_side_step(tx, SideHook.thread_title, run_id=answer.run.run_id if answer.run is not None else "")
        if origin.also is not None:
            await origin.also(tx, answer)
        tx.record(asked, answer.wire())
        return Reply(answer), await tx.flush()

    reply, publication = await runtime.store.run_write(work)
    if publication is not None:
        await runtime.tell(publication)
    return reply


async def _describe(
    tx: ThreadTransaction, request: SendRequest, *, metadata: dict[str, Any], message: dict[str, Any], origin: Origin
) -> None:
    creation = request.thread
    if origin.parent is not None:
        await begin_child(tx, origin.parent)
    elif creation is not None and creation.parent_thread_id is not None:
        await name_parent(tx, creation.parent_thread_id)
    title: dict[str, Any] | None = None
    if creation is not None and creation.title:
        title = {"value": creation.title, "source": "user", "updatedAt": iso(tx.now)}
    elif tx.agent.thread_titles == "first_words" and (words := first_words(message["parts"])) is not None:
        title = {"value": words, "source": "generated", "updatedAt": iso(tx.now)}
    tx.update(
        tx.thread,
        title=title,
        meta=metadata,
        hidden=origin.hidden,
        category=None if creation is None else creation.category,
    )


def first_words(parts: list[dict[str, Any]]) -> str | None:
    """The default title: the first line of the first text, cut at a word."""
    text = next((part["text"] for part in parts if part["type"] == "text" and part["text"].strip()), None)
    if text is None:
        return None
    line: str = " ".join(text.strip().splitlines()[0].split())
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut) + "…"


async def _accept(
    tx: ThreadTransaction, request: SendRequest, message: dict[str, Any], context: dict[str, Any], *, initiator: str
) -> MutationResult:
    thread, queue = tx.thread, request.queue
    idle = thread.status == ThreadStatus.idle
    if not idle and queue is None:
        raise ThreadBusy(thread.status, active_run_id=records.active_run_id(thread), pending_actions=thread.actions)
    limit = tx.runtime.settings.max_queued_messages
    if not idle and sum(len(item.messages) for item in await tx.queue()) >= limit:
        raise QueueFull(limit=limit)
    merges = not idle and queue is not None and queue.merge == "last"
    item = await _merged(tx, request, message, initiator=initiator) if merges else None
    run = await tx.run(item.run_id) if item is not None else None
    if item is None or run is None:
        item, run = _new_turn(tx, request, message, context, idle=idle, initiator=initiator)
        await tx.add_queue_item(item)
        tx.insert(run)
    elif context:
        tx.update(run, **context)
    tx.update(thread, listed_at=tx.now)
    await advance(tx)
    return MutationResult(
        run=records.run_state(run, thread_id=thread.thread_id),
        message_ids=[message["id"]],
        queue_item_id=None if idle else item.queue_item_id,
        version=thread.version,
        revision=tx.revision,
    )


def _new_turn(
    tx: ThreadTransaction,
    request: SendRequest,
    message: dict[str, Any],
    context: dict[str, Any],
    *,
    idle: bool,
    initiator: str,
) -> tuple[QueueItem, Run]:
    """The queue item and the run of one input. An idle thread admits at once: the item never reaches the table."""
    mode = "queue" if request.queue is None else request.queue.mode
    run = Run(
        run_id=new_id("run"),
        version=tx.version,
        position=tx.position(),
        initiator=initiator,
        mode="direct" if idle else mode,
        queue_item_id=None,
        status=RunStatus.queued,
        input_message_ids=[message["id"]],
        created_at=tx.now,
        meta=checked_metadata(tx.agent.run_metadata, {}, at="metadata"),
        **context,
    )
    facts = {"producer": initiator, "runId": run.run_id, "relation": "input", "status": "committed"}
    times = {"createdAt": iso(tx.now), "updatedAt": iso(tx.now)}
    item = QueueItem(
        queue_item_id=new_id("item"),
        version=tx.version,
        run_id=run.run_id,
        position=tx.position(),
        mode=mode,
        messages=[{**message, "metadata": {**message["metadata"], "pai": {**facts, **times}}}],
        created_at=tx.now,
    )
    if not idle:
        run.queue_item_id = item.queue_item_id
    return item, run


async def _merged(
    tx: ThreadTransaction, request: SendRequest, message: dict[str, Any], *, initiator: str
) -> QueueItem | None:
    """The newest queued item of the same mode, with this message as its last; None when there is none."""
    mode = request.queue.mode if request.queue is not None else "queue"
    item = next((item for item in reversed(await tx.queue()) if item.mode == mode), None)
    run = None if item is None else await tx.run(item.run_id)
    if item is None or run is None:
        return None
    facts = {"producer": initiator, "runId": run.run_id, "relation": "input", "status": "committed"}
    times = {"createdAt": iso(tx.now), "updatedAt": iso(tx.now)}
    message = {**message, "metadata": {**message["metadata"], "pai": {**facts, **times}}}
    tx.update(item, messages=[*item.messages, message])
    tx.update(run, input_message_ids=[*(run.input_message_ids or []), message["id"]])
    return item
