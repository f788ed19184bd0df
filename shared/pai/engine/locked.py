"""What a decision begins with: the thread's row, locked, and the rows that it nearly always needs, in one exchange.

Each statement sees what was committed before it began, and the first one waits for the lock. So the rows are those that
the holder of the lock may decide on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, select, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.store.statements import Statement
from pai.store.store import execute_all, fetch_all
from pai.store.tables import (
    LIVE_STEPS,
    EffectState,
    Journal,
    JournalTable,
    Message,
    MessageTable,
    Run,
    RunTable,
    Step,
    StepTable,
    Thread,
    ThreadTable,
    table_of,
)

_THREAD, _RUN, _MESSAGE = table_of(ThreadTable), table_of(RunTable), table_of(MessageTable)
_STEP, _JOURNAL = table_of(StepTable), table_of(JournalTable)

Rows = Sequence[Mapping[str, Any]]

NAMED = (
    _THREAD.c.owner == bindparam("owner"),
    _THREAD.c.agent == bindparam("agent"),
    _THREAD.c.thread_id == bindparam("thread_id"),
)
"""The conditions of a thread that is known by its name."""

BY_NAME = select(_THREAD).where(*NAMED)
LOCK_BY_NAME = BY_NAME.with_for_update()
STILL = text(
    "SELECT 1 / count(*) FROM (SELECT 1 FROM thread "
    "WHERE version = :version AND revision = :revision AND log_epoch = :log_epoch FOR UPDATE) AS still"
)
"""Locks a thread that nobody has changed; fails, and undoes the transaction, when somebody has. For PostgreSQL."""

LOCK_BY_VERSION = select(_THREAD).where(_THREAD.c.version == bindparam("version")).with_for_update()


def version_by_name() -> ColumnElement[str]:
    """The version of the thread with the name that the parameters give."""
    return select(_THREAD.c.version).where(*NAMED).scalar_subquery()


def _live_steps(version: Any) -> Select[Any]:
    return (
        select(_STEP)
        .where(_STEP.c.version == version, _STEP.c.state.in_([state.value for state in LIVE_STEPS]))
        .order_by(_STEP.c.number)
    )


def _runs(version: Any, condition: ColumnElement[bool]) -> Select[Any]:
    """The thread's current run, and the one that is asked for."""
    current = select(_THREAD.c.current_run_id).where(condition).scalar_subquery()
    return select(_RUN).where(_RUN.c.version == version, _RUN.c.run_id.in_([bindparam("run_id"), current]))


_VERSION: Any = bindparam("version")
STEPS_LIVE = _live_steps(_VERSION)
_RUNS = _runs(_VERSION, _THREAD.c.version == _VERSION)
STEPS_BY_NAME = _live_steps(version_by_name())
RUNS_BY_NAME = _runs(version_by_name(), and_(*NAMED))


def _message(version: Any) -> Select[Any]:
    return select(_MESSAGE).where(_MESSAGE.c.version == version, _MESSAGE.c.message_id == bindparam("message_id"))


MESSAGE_BY_ID = _message(_VERSION)
MESSAGE_BY_NAME = _message(version_by_name())
ASKED_BY_NAME = (
    select(_JOURNAL)
    .join(_STEP, _STEP.c.step_id == _JOURNAL.c.step_id)
    .where(
        _STEP.c.version == version_by_name(),
        _STEP.c.message_id == bindparam("message_id"),
        _STEP.c.tool_call_id == bindparam("tool_call_id"),
        _JOURNAL.c.state == EffectState.pending.value,
    )
    .order_by(_JOURNAL.c.ordinal.desc())
)
"""What a tool call waits for, the latest first."""


@dataclass(slots=True)
class Locked:
    """`steps`: the live ones, in order. `runs`: the current one and the one asked for. `message`: the one asked for.

    `asked`: what the call that was named waits for.
    """

    thread: Thread
    steps: list[Step] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    message: Message | None = None
    asked: Journal | None = None

    def copied(self) -> "Locked":
        """For one attempt at a transaction, which changes its rows."""
        return Locked(
            self.thread.model_copy(),
            [step.model_copy() for step in self.steps],
            [run.model_copy() for run in self.runs],
            None if self.message is None else self.message.model_copy(),
            None if self.asked is None else self.asked.model_copy(),
        )


async def lock_by_version(connection: AsyncConnection, *, version: str) -> Thread | None:
    [rows] = await fetch_all(connection, [(LOCK_BY_VERSION, {"version": version})])
    return thread_of(rows)


async def lock_to_decide(
    connection: AsyncConnection, *, version: str, run_id: str = "", message_id: str | None = None
) -> Locked | None:
    """Locks an incarnation and reads what a decision on it starts from; None when it is gone."""
    of_version = {"version": version}
    statements: list[Statement] = [
        (LOCK_BY_VERSION, of_version),
        (STEPS_LIVE, of_version),
        (_RUNS, {"version": version, "run_id": run_id}),
    ]
    if message_id is not None:
        statements.append((MESSAGE_BY_ID, {"version": version, "message_id": message_id}))
    return locked_of(*await fetch_all(connection, statements))


def locked_of(threads: Rows, steps: Rows, runs: Rows, messages: Rows = (), asked: Rows = ()) -> Locked | None:
    """What the answers to these statements hold; None when there is no such thread."""
    thread = thread_of(threads)
    if thread is None:
        return None
    return Locked(
        thread,
        [Step.of(row) for row in steps],
        [Run.of(row) for row in runs],
        Message.of(messages[0]) if messages else None,
        Journal.of(asked[0]) if asked else None,
    )


async def lock_unchanged(connection: AsyncConnection, thread: Thread) -> None:
    """Locks a thread together with whatever comes next, for a transaction that decides on rows that were read before.

    Whoever changes a thread raises its revision, so all of them are as they were. Otherwise the transaction fails with
    an error that `has_moved` knows.
    """
    parameters = {"version": thread.version, "revision": thread.revision, "log_epoch": thread.log_epoch}
    await execute_all(connection, [(STILL, parameters)])


def has_moved(error: DataError) -> bool:
    """Whether a transaction failed because somebody had changed the thread: STILL divided by zero."""
    return getattr(error.orig, "sqlstate", None) == "22012"


def thread_of(rows: Rows) -> Thread | None:
    """The thread in the answer to one of the locks."""
    return Thread.of(rows[0]) if rows else None
