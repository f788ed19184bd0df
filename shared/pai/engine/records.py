"""Rows as the wire shows them."""

from typing import Any, cast

from pai.protocol.state import (
    CapabilityState,
    FinishReason,
    Initiator,
    PaiThreadHead,
    QueuedItem,
    QueueMode,
    QueueState,
    RunAdmission,
    RunError,
    RunState,
    RunStatus,
    ThreadErrorRecord,
    ThreadStatus,
    ThreadSummary,
    ThreadTitleRecord,
)
from pai.protocol.times import iso
from pai.protocol.usage import UsageSummary
from pai.store.tables import Message, QueueItem, Run, Thread


def thread_head(thread: Thread) -> PaiThreadHead:
    return PaiThreadHead(
        thread_id=thread.thread_id,
        version=thread.version,
        status=ThreadStatus(thread.status),
        title=None if thread.title is None else ThreadTitleRecord.read(thread.title),
        metadata=thread.meta,
    )


def thread_summary(thread: Thread, *, trusted: bool = False) -> ThreadSummary:
    return ThreadSummary(
        thread_id=thread.thread_id,
        version=thread.version,
        title=None if thread.title is None else ThreadTitleRecord.read(thread.title),
        status=ThreadStatus(thread.status),
        category=thread.category,
        parent_thread_id=thread.parent_thread_id,
        metadata=thread.meta,
        revision=thread.revision,
        created_at=iso(thread.created_at),
        updated_at=iso(thread.updated_at),
        agent=thread.agent if trusted else None,
        hidden=thread.hidden if trusted else None,
        owner=thread.owner if trusted else None,
    )


def active_run_id(thread: Thread) -> str | None:
    """The run that owns execution; None while it waits."""
    return thread.current_run_id if thread.status == ThreadStatus.running else None


def capabilities(thread: Thread) -> CapabilityState:
    return CapabilityState(
        can_stop=thread.current_run_id is not None or thread.queued > 0,
        can_respond_to_actions=bool(thread.actions),
    )


def thread_error(thread: Thread) -> ThreadErrorRecord | None:
    return None if thread.error is None else ThreadErrorRecord.read(thread.error)


def usage(record: dict[str, Any]) -> UsageSummary:
    return UsageSummary.read(record)


def run_state(run: Run, *, thread_id: str) -> RunState:
    status = RunStatus(run.status)
    return RunState(
        thread_id=thread_id,
        run_id=run.run_id,
        input_message_ids=run.input_message_ids,
        initiator=cast(Initiator, run.initiator),
        admission=RunAdmission(mode=cast(Any, run.mode), queue_item_id=run.queue_item_id),
        usage=usage(run.usage),
        metadata=run.meta,
        created_at=iso(run.created_at),
        status=status,
        started_at=None if run.started_at is None else iso(run.started_at),
        completed_at=iso(run.completed_at) if status.terminal and run.completed_at is not None else None,
        finish_reason=cast(FinishReason, run.finish_reason) if status is RunStatus.completed else None,
        error=RunError.read(run.error) if status is RunStatus.failed and run.error is not None else None,
        reason=run.reason if status is RunStatus.cancelled else None,
    )


def message_record(message: Message) -> dict[str, Any]:
    """The message as a UIMessage; shares its parts with the row."""
    return {"id": message.message_id, "role": message.role, "metadata": message.meta, "parts": message.parts}


def queued_item(item: QueueItem) -> QueuedItem:
    return QueuedItem(
        queue_item_id=item.queue_item_id,
        run_id=item.run_id,
        mode=cast(QueueMode, item.mode),
        messages=item.messages,
        created_at=iso(item.created_at),
    )


def queue_state(items: list[QueueItem]) -> QueueState:
    return QueueState(items=[queued_item(item) for item in items], can_recall=bool(items))
