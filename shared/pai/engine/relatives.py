"""What threads have to say to each other: a child that its run ended, a parent that its children stop or go.

No transaction locks two threads. It writes flags, with which `pai.engine.delivery` comes to the other thread, whose own
transaction takes them. Other threads' rows are read here, never changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable, bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.flags import INSERT_FLAG, flag, remove_flag, stop_flag
from pai.engine.locked import NAMED
from pai.engine.transaction import StepLost, ThreadTransaction
from pai.protocol.state import RunStatus, ThreadStatus
from pai.store.store import execute_all
from pai.store.tables import (
    LIVE_STEPS,
    EffectKind,
    EffectState,
    Flag,
    FlagKind,
    FlagTable,
    JournalTable,
    MessageTable,
    Run,
    StepState,
    StepTable,
    Thread,
    ThreadTable,
    table_of,
)

_THREAD, _FLAG, _JOURNAL = table_of(ThreadTable), table_of(FlagTable), table_of(JournalTable)
_STEP, _MESSAGE = table_of(StepTable), table_of(MessageTable)
_STARTED = (
    select(_JOURNAL.c.value, _JOURNAL.c.name, _JOURNAL.c.step_id, _STEP.c.run_id)
    .join(_STEP, _STEP.c.step_id == _JOURNAL.c.step_id)
    .where(
        _JOURNAL.c.version == bindparam("version"),
        _JOURNAL.c.kind == EffectKind.start.value,
        _JOURNAL.c.state == EffectState.started.value,
        # What was started in vain is nobody's concern when its call is over.
        _STEP.c.state.in_([state.value for state in LIVE_STEPS]),
    )
)
_CREATED = select(_THREAD.c.version).where(_THREAD.c.version.in_(bindparam("versions", expanding=True)))
_CHILDREN = select(
    _THREAD.c.version,
    _THREAD.c.agent,
    _THREAD.c.hidden,
    _THREAD.c.current_run_id,
    _THREAD.c.parent_run_id,
    _THREAD.c.parent_step_id,
).where(_THREAD.c.parent_version == bindparam("version"))
_BUSY_CHILDREN = _CHILDREN.where(_THREAD.c.status != ThreadStatus.idle.value)
_PARENT = select(_THREAD.c.version, _THREAD.c.depth).where(
    *NAMED,
    _THREAD.c.hidden.is_(False),
)
_HELD = select(_STEP.c.step_id).where(
    _STEP.c.step_id == bindparam("step_id"),
    _STEP.c.attempt == bindparam("attempt"),
    _STEP.c.state == StepState.running.value,
)
_FLAGGED = select(_FLAG.c.flag_id).where(_FLAG.c.version == bindparam("version"))
_ENDED = select(_FLAG).where(
    _FLAG.c.version == bindparam("version"),
    _FLAG.c.kind == FlagKind.ended.value,
    _FLAG.c.child_version == bindparam("child_version"),
)


@dataclass(frozen=True, slots=True)
class ParentCall:
    """The tool call that starts a child thread, and the child's `version`."""

    thread: Thread
    run_id: str
    step_id: str
    attempt: int
    version: str


@dataclass(frozen=True, slots=True)
class _Child:
    version: str
    agent: str
    hidden: bool
    current_run_id: str | None
    run_id: str | None
    step_id: str | None


async def name_parent(tx: ThreadTransaction, parent_thread_id: str) -> None:
    """In the transaction that creates a thread: the thread above it, of the same owner and agent, if there is one."""
    own = {"owner": tx.thread.owner, "agent": tx.thread.agent, "thread_id": parent_thread_id}
    row = (await tx.connection.execute(_PARENT, own)).first()
    tx.update(tx.thread, parent_thread_id=parent_thread_id)
    if row is not None:
        tx.update(tx.thread, parent_version=row.version, parent_agent=tx.thread.agent, depth=row.depth + 1)


class ChildEnded(Exception):
    """The child was created before, and what it came to waits for the call; its thread is gone since."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


async def begin_child(tx: ThreadTransaction, call: ParentCall) -> None:
    """In the transaction that creates a child. Raises StepLost when its parent was stopped or deleted meanwhile, and
    ChildEnded.

    A parent's stop that this read misses finds the child in the journal of the call, and its flag waits for the child.
    """
    parent = call.thread
    tx.update(
        tx.thread,
        parent_version=parent.version,
        parent_thread_id=parent.thread_id,
        parent_agent=parent.agent,
        parent_run_id=call.run_id,
        parent_step_id=call.step_id,
        depth=parent.depth + 1,
    )
    names = {"version": parent.version, "child_version": call.version}
    row = (await tx.connection.execute(_ENDED, names)).mappings().first()
    if row is not None:
        raise ChildEnded(row["value"]["runId"])
    held = {"step_id": call.step_id, "attempt": call.attempt}
    lost = (await tx.connection.execute(_HELD, held)).first() is None
    if lost or (await tx.connection.execute(_FLAGGED, {"version": call.version})).first() is not None:
        raise StepLost(call.step_id)


async def child_ended(tx: ThreadTransaction, run: Run) -> None:
    """Tells the call that started this thread how the first run ended. Later ones are not its business."""
    thread = tx.thread
    if thread.parent_step_id is None or thread.parent_version is None or thread.parent_agent is None:
        return
    value: dict[str, Any] = {"threadId": thread.thread_id, "runId": run.run_id, "status": str(run.status)}
    value["text"] = await _last_text(tx, run)
    if run.status == RunStatus.failed and run.error is not None:
        value["error"] = run.error
    if run.status == RunStatus.cancelled and run.reason is not None:
        value["reason"] = run.reason
    tx.insert(_ended(thread, value))
    tx.update(thread, parent_step_id=None, parent_run_id=None)


def _ended(thread: Thread, value: dict[str, Any]) -> Flag:
    return flag(
        FlagKind.ended,
        version=thread.parent_version or "",
        agent=thread.parent_agent or "",
        child_version=thread.version,
        step_id=thread.parent_step_id,
        value=value,
    )


async def _last_text(tx: ThreadTransaction, run: Run) -> str:
    message = None if run.message_id is None else await tx.message(run.message_id)
    parts = [] if message is None else tx.fold(message).message["parts"]
    return "".join(part["text"] for part in parts if part["type"] == "text")


async def take_ended(tx: ThreadTransaction, *, child_version: str) -> Any:
    """What a child said when it ended, once; None when it has not."""
    names = {"version": tx.version, "child_version": child_version}
    row = (await tx.connection.execute(_ENDED, names)).mappings().first()
    if row is None:
        return None
    await remove_flag(tx.connection, row["flag_id"])
    return row["value"]


async def stop_children(
    tx: ThreadTransaction, *, run_id: str | None = None, step_ids: Sequence[str] | None = None
) -> None:
    """Flags the children that work: all of them, those that a run started, or those that these calls started."""
    for child in await _children(tx.connection, tx.version, _BUSY_CHILDREN):
        if run_id is not None and child.run_id != run_id:
            continue
        if step_ids is None or child.step_id in step_ids:
            tx.insert(_stop(FlagKind.stop, child))


async def part_with_relatives(connection: AsyncConnection, thread: Thread) -> list[str]:
    """In the transaction that deletes a thread: hidden children go, the others stop, a waiting parent is told.

    -> the ids of the flags.
    """
    flags = [
        flag(FlagKind.delete, version=child.version, agent=child.agent)
        if child.hidden
        else _stop(FlagKind.orphan, child)
        for child in await _children(connection, thread.version, _CHILDREN)
    ]
    if thread.parent_step_id is not None and thread.parent_version is not None:
        gone = {"threadId": thread.thread_id, "runId": thread.current_run_id, "status": "deleted", "text": ""}
        flags.append(_ended(thread, gone))
    await connection.execute(delete(_FLAG).where(_FLAG.c.version == thread.version))
    if flags:
        await execute_all(connection, [(INSERT_FLAG, [one.model_dump() for one in flags])])
    return [one.flag_id for one in flags]


def _stop(kind: FlagKind, child: _Child) -> Flag:
    return stop_flag(kind, version=child.version, agent=child.agent, run_id=child.current_run_id)


async def _children(connection: AsyncConnection, version: str, query: Executable) -> list[_Child]:
    """Children as they are, and those that a call is about to create: their rows may appear at any moment."""
    names = {"version": version}
    starts = (await connection.execute(_STARTED, names)).mappings().all()
    creating = [row["value"]["version"] for row in starts]
    there = set((await connection.execute(_CREATED, {"versions": creating})).scalars()) if creating else set()
    # Last, so that a child that appears meanwhile is among them.
    children = {row.version: _Child(*row) for row in await connection.execute(query, names)}
    for row in starts:
        child = row["value"]["version"]
        if child not in there and child not in children:
            hidden = row["value"]["hidden"]
            children[child] = _Child(child, row["name"], hidden, None, row["run_id"], row["step_id"])
    return list(children.values())
