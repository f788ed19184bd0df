"""The tables. Each record class holds the fields; the table class beside it maps them to SQL.

Engine code reads rows with Core statements into record objects (`Record.of(row)`) and writes with Core statements, so
that the hot path pays for neither identity map nor instrumentation.

Times are integer milliseconds since the epoch. Lease times are written by the database's clock only. JSON is stored as
text in the order given (`json` on PostgreSQL): nothing queries inside.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self, cast

from sqlalchemy import BigInteger, Index, Table, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from pai.store.types import Json


def _big(default: int | None = None, **options: Any) -> Any:
    return Field(default=default, sa_type=BigInteger, **options)


def _json(default: Any = None, **options: Any) -> Any:
    return Field(default=default, sa_type=Json, **options)


def _version(**options: Any) -> Any:
    return Field(sa_type=Text, foreign_key="thread.version", ondelete="CASCADE", **options)


def _where(condition: str) -> dict[str, Any]:
    """The condition of a partial index."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


class Record(SQLModel):
    """A row outside SQL: attributes may be set; nothing is tracked."""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Self:
        return cast(Self, cls.model_construct(None, **row))


def table_of(cls: type[SQLModel]) -> Table:
    """The Core table of a mapped class."""
    table: Table = cls.__table__  # type: ignore[attr-defined]
    return table


class StepKind(StrEnum):
    model = "model"
    tool = "tool"
    hook = "hook"


class StepState(StrEnum):
    pending = "pending"
    running = "running"
    suspended = "suspended"
    done = "done"
    failed = "failed"
    cancelled = "cancelled"

    @property
    def live(self) -> bool:
        return self in LIVE_STEPS


LIVE_STEPS = frozenset({StepState.pending, StepState.running, StepState.suspended})


class Thread(Record):
    """One incarnation of a conversation; `version` is its id.

    `current_run_id` is the run that runs or waits, `queued` how many inputs wait for their turn, `actions` the
    references of the pending actions, `next_position` and `next_step` the counters of messages, runs and steps.
    `parent_run_id` and `parent_step_id` name the tool call that started a child, `depth` counts the threads above it.
    """

    version: str = Field(primary_key=True, sa_type=Text)
    owner: str = Field(sa_type=Text)
    agent: str = Field(sa_type=Text)
    thread_id: str = Field(sa_type=Text)
    parent_version: str | None = Field(default=None, sa_type=Text)
    parent_thread_id: str | None = Field(default=None, sa_type=Text)
    parent_agent: str | None = Field(default=None, sa_type=Text)
    parent_run_id: str | None = Field(default=None, sa_type=Text)
    parent_step_id: str | None = Field(default=None, sa_type=Text)
    depth: int = 0
    category: str | None = Field(default=None, sa_type=Text)
    hidden: bool = False
    title: dict[str, Any] | None = _json()
    meta: dict[str, Any] = _json({})
    private_meta: dict[str, Any] = _json({})
    status: str = Field(default="idle", sa_type=Text)
    current_run_id: str | None = Field(default=None, sa_type=Text)
    queued: int = 0
    actions: list[dict[str, Any]] = _json([])
    revision: int = _big(0)
    log_epoch: int = _big(1)
    next_position: int = _big(0)
    next_step: int = _big(1)
    usage: dict[str, Any] = _json({})
    error: dict[str, Any] | None = _json()
    created_at: int = _big(0)
    updated_at: int = _big(0)
    listed_at: int = _big(0)


class ThreadTable(Thread, table=True):
    __tablename__ = "thread"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("owner", "agent", "thread_id", name="uq_thread_owner_agent_thread_id"),
        Index("ix_thread_list", "owner", "agent", "hidden", "listed_at", "version"),
        Index("ix_thread_parent", "parent_version"),
        Index("ix_thread_listed", "listed_at", "version"),
        Index(
            "ix_thread_list_parent",
            *("owner", "agent", "parent_thread_id", "listed_at", "version"),
            **_where("parent_thread_id IS NOT NULL"),
        ),
        Index(
            "ix_thread_list_category",
            *("owner", "agent", "category", "listed_at", "version"),
            **_where("category IS NOT NULL"),
        ),
        Index("ix_thread_busy", "owner", **_where("status <> 'idle'")),
    )


class Run(Record):
    """One turn. `client_data` and `client_tools` are the request context; a later request that carries one replaces it.

    `seen_tools` are the request's tools by name as the model saw them: what their outputs are checked against.
    `message_id` is the assistant message of its latest model step; `turn_reason` why that step's model call ended, None
    while it has not.
    """

    run_id: str = Field(primary_key=True, sa_type=Text)
    version: str = Field(sa_type=Text)
    position: int = _big(0)
    initiator: str = Field(sa_type=Text)
    mode: str = Field(default="direct", sa_type=Text)
    queue_item_id: str | None = Field(default=None, sa_type=Text)
    status: str = Field(sa_type=Text)
    input_message_ids: list[str] | None = _json()
    usage: dict[str, Any] = _json({})
    meta: dict[str, Any] = _json({})
    private_meta: dict[str, Any] = _json({})
    client_data: Any = _json(nullable=True)
    client_tools: list[dict[str, Any]] | None = _json()
    seen_tools: dict[str, Any] = _json({})
    phase: str = Field(default="start", sa_type=Text)
    model_steps: int = 0
    message_id: str | None = Field(default=None, sa_type=Text)
    turn_reason: str | None = Field(default=None, sa_type=Text)
    finish_reason: str | None = Field(default=None, sa_type=Text)
    error: dict[str, Any] | None = _json()
    reason: str | None = Field(default=None, sa_type=Text)
    created_at: int = _big(0)
    started_at: int | None = _big()
    completed_at: int | None = _big()


class RunTable(Run, table=True):
    __tablename__ = "run"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_run_version", "version", "position"),)

    version: str = _version()


class Message(Record):
    """One UIMessage. `position`: its place in the thread. `folding` and `stored_sequence` are set while it is open."""

    version: str = Field(primary_key=True, sa_type=Text)
    message_id: str = Field(primary_key=True, sa_type=Text)
    position: int = _big(0)
    run_id: str | None = Field(default=None, sa_type=Text)
    role: str = Field(sa_type=Text)
    meta: dict[str, Any] = _json({})
    parts: list[dict[str, Any]] = _json([])
    private_meta: dict[str, Any] = _json({})
    visibility: str = Field(default="all", sa_type=Text)
    open: bool = False
    folding: dict[str, Any] | None = _json()
    stored_sequence: int = _big(0)


class MessageTable(Message, table=True):
    __tablename__ = "message"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("version", "position", name="uq_message_version_position"),
        Index("ix_message_run", "version", "run_id"),
    )

    version: str = _version(primary_key=True)


class QueueItem(Record):
    """Input that waits for its turn. `messages`: whole UIMessages, appended to the transcript at admission."""

    queue_item_id: str = Field(primary_key=True, sa_type=Text)
    version: str = Field(sa_type=Text)
    run_id: str = Field(sa_type=Text)
    position: int = _big(0)
    mode: str = Field(sa_type=Text)
    messages: list[dict[str, Any]] = _json([])
    created_at: int = _big(0)


class QueueItemTable(QueueItem, table=True):
    __tablename__ = "queue_item"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_queue_item_version", "version", "position"),)

    version: str = _version()


class Step(Record):
    """The unit of execution, lease and retry. `number` increases within the thread; `attempt` is only the fence.

    `dispatch_at`: when the sweep looks at it again: to dispatch a pending step, to end a suspended one.
    """

    step_id: str = Field(primary_key=True, sa_type=Text)
    version: str = Field(sa_type=Text)
    number: int = _big(0)
    kind: str = Field(sa_type=Text)
    agent: str = Field(sa_type=Text)
    run_id: str = Field(sa_type=Text)
    message_id: str | None = Field(default=None, sa_type=Text)
    tool_call_id: str | None = Field(default=None, sa_type=Text)
    name: str | None = Field(default=None, sa_type=Text)
    state: str = Field(default="pending", sa_type=Text)
    queue: str = Field(default="pai", sa_type=Text)
    attempt: int = 0
    tries: int = 0
    max_attempts: int = 1
    available_at: int = _big(0)
    timeout_ms: int | None = _big()
    deadline_at: int | None = _big()
    lease_owner: str | None = Field(default=None, sa_type=Text)
    lease_expires_at: int | None = _big()
    dispatches: int = 0
    dispatch_at: int | None = _big()
    first_started_at: int | None = _big()
    finish_reason: str | None = Field(default=None, sa_type=Text)
    error: dict[str, Any] | None = _json()

    @property
    def outside(self) -> bool:
        """Whether nobody executes it: its output comes as an action. Whatever is executed has a longest time."""
        return self.kind == StepKind.tool and self.timeout_ms is None


class StepTable(Step, table=True):
    __tablename__ = "step"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("ix_step_version", "version", "run_id"),
        Index("ix_step_due", "dispatch_at", **_where("dispatch_at IS NOT NULL")),
        Index("ix_step_leases", "lease_expires_at", **_where("lease_expires_at IS NOT NULL")),
    )

    version: str = _version()


class EffectKind(StrEnum):
    step = "step"
    suspend = "suspend"
    start = "start"
    follow = "follow"
    shown = "shown"


class EffectState(StrEnum):
    started = "started"
    done = "done"
    pending = "pending"
    resumed = "resumed"


class Journal(Record):
    """Effects of a tool call, in order: what re-entry must not do again."""

    step_id: str = Field(primary_key=True, sa_type=Text)
    ordinal: int = Field(primary_key=True)
    version: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    value: Any = _json(nullable=True)


class JournalTable(Journal, table=True):
    __tablename__ = "journal"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_journal_version", "version"),)

    step_id: str = Field(primary_key=True, sa_type=Text, foreign_key="step.step_id", ondelete="CASCADE")
    version: str = _version()


class Receipt(Record):
    """A mutation that was done: the hash of its request and the recorded result."""

    version: str = Field(primary_key=True, sa_type=Text)
    kind: str = Field(primary_key=True, sa_type=Text)
    request_id: str = Field(primary_key=True, sa_type=Text)
    request_hash: str = Field(sa_type=Text)
    result: dict[str, Any] = _json({})
    created_at: int = _big(0)


class ReceiptTable(Receipt, table=True):
    __tablename__ = "receipt"  # pyright: ignore[reportAssignmentType]

    version: str = _version(primary_key=True)


class FlagKind(StrEnum):
    """`ended`: a child's run is over. `stop`, `orphan` (stop, and have no parent any more), `delete`: for a child."""

    ended = "ended"
    stop = "stop"
    orphan = "orphan"
    delete = "delete"


class Flag(Record):
    """What one thread's transaction has to say to another thread, whose own transaction takes it and removes it.

    The thread may be gone, or not be there yet, so `version` is no foreign key. `child_version` and `step_id` say which
    child has ended and which call started it. `due_at`: when the sweep looks at it.
    """

    flag_id: str = Field(primary_key=True, sa_type=Text)
    version: str = Field(sa_type=Text)
    agent: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    child_version: str | None = Field(default=None, sa_type=Text)
    step_id: str | None = Field(default=None, sa_type=Text)
    value: Any = _json(nullable=True)
    tries: int = 0
    due_at: int = _big(0)
    created_at: int = _big(0)


class FlagTable(Flag, table=True):
    __tablename__ = "flag"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_flag_version", "version"), Index("ix_flag_due", "due_at"))


class FileState(StrEnum):
    """`deleting`: the row stays until the bytes are gone."""

    uploading = "uploading"
    ready = "ready"
    deleting = "deleting"


class File(Record):
    """A file whose bytes are with the provider under its id. Whoever decides about it holds its row.

    `due_at`: when the sweep looks at it; None while messages use it. `version`: the thread that it was made for, or
    that used it first. `request_key` is used once, for the request with `request_hash`; `sha256` is that of the bytes.
    """

    file_id: str = Field(primary_key=True, sa_type=Text)
    owner: str = Field(sa_type=Text)
    agent: str = Field(sa_type=Text)
    version: str | None = Field(default=None, sa_type=Text)
    state: str = Field(default="uploading", sa_type=Text)
    media_type: str = Field(sa_type=Text)
    filename: str | None = Field(default=None, sa_type=Text)
    byte_size: int = _big(0)
    sha256: str | None = Field(default=None, sa_type=Text)
    meta: dict[str, Any] | None = _json()
    request_key: str | None = Field(default=None, sa_type=Text)
    request_hash: str | None = Field(default=None, sa_type=Text)
    due_at: int | None = _big()
    created_at: int = _big(0)


class FileTable(File, table=True):
    __tablename__ = "file"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("owner", "agent", "request_key", name="uq_file_owner_agent_request_key"),
        # Both columns, so that the sum of an identity's bytes reads the index alone.
        Index("ix_file_stored", "owner", "byte_size", **_where("state <> 'deleting'")),
        Index("ix_file_version", "version", **_where("version IS NOT NULL")),
        Index("ix_file_due", "due_at", **_where("due_at IS NOT NULL")),
    )


class FileUse(Record):
    """A message, queued or in the transcript, that refers to a file."""

    version: str = Field(primary_key=True, sa_type=Text)
    message_id: str = Field(primary_key=True, sa_type=Text)
    file_id: str = Field(primary_key=True, sa_type=Text)


class FileUseTable(FileUse, table=True):
    __tablename__ = "file_use"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_file_use_file", "file_id"),)

    version: str = _version(primary_key=True)
    file_id: str = Field(primary_key=True, sa_type=Text, foreign_key="file.file_id", ondelete="CASCADE")


class Schedule(Record):
    """When a trigger fires next: `next_at` is the slot that nobody has claimed yet."""

    agent: str = Field(primary_key=True, sa_type=Text)
    trigger: str = Field(primary_key=True, sa_type=Text)
    next_at: int = _big(0)


class ScheduleTable(Schedule, table=True):
    __tablename__ = "schedule"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("ix_schedule_next_at", "next_at"),)


class FireState(StrEnum):
    pending = "pending"
    running = "running"
    done = "done"
    skipped = "skipped"
    failed = "failed"


class TriggerFire(Record):
    """One fire of a trigger, at most one per slot. It is closed by the transaction that creates its run.

    `skipped`: the trigger had nothing to send. Leases and tries are those of a step. A fire by call has no slot; the
    caller's `request_key` is used once, for the request with `request_hash`, and `result` is what it was answered.
    """

    fire_id: str = Field(primary_key=True, sa_type=Text)
    agent: str = Field(sa_type=Text)
    trigger: str = Field(sa_type=Text)
    slot: int | None = _big()
    owner: str = Field(sa_type=Text)
    state: str = Field(default="pending", sa_type=Text)
    attempt: int = 0
    due_at: int | None = _big()
    thread_id: str | None = Field(default=None, sa_type=Text)
    run_id: str | None = Field(default=None, sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    request_key: str | None = Field(default=None, sa_type=Text)
    request_hash: str | None = Field(default=None, sa_type=Text)
    result: dict[str, Any] | None = _json()
    created_at: int = _big(0)


class TriggerFireTable(TriggerFire, table=True):
    __tablename__ = "trigger_fire"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("agent", "trigger", "slot", name="uq_trigger_fire_agent_trigger_slot"),
        UniqueConstraint("owner", "agent", "trigger", "request_key", name="uq_trigger_fire_request_key"),
        Index("ix_trigger_fire_due", "due_at", **_where("due_at IS NOT NULL")),
        Index("ix_trigger_fire_closed", "created_at", **_where("due_at IS NULL")),
    )


class ApiKey(Record):
    """A key that a program shows. Only a hash of its secret is kept, so a key can be read once: when it is made."""

    key_id: str = Field(primary_key=True, sa_type=Text)
    secret_hash: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    tenant: str = Field(sa_type=Text)
    subject: str = Field(sa_type=Text)
    trusted: bool = False
    created_at: int = _big(0)
    last_used_at: int | None = _big()
    expires_at: int | None = _big()
    revoked_at: int | None = _big()


class ApiKeyTable(ApiKey, table=True):
    __tablename__ = "api_key"  # pyright: ignore[reportAssignmentType]


class SigningKey(Record):
    """A secret that this installation made for itself, because its settings name none."""

    name: str = Field(primary_key=True, sa_type=Text)
    value: str = Field(sa_type=Text)


class SigningKeyTable(SigningKey, table=True):
    __tablename__ = "signing_key"  # pyright: ignore[reportAssignmentType]


__all__ = [
    "LIVE_STEPS",
    "ApiKey",
    "ApiKeyTable",
    "File",
    "FileState",
    "FileTable",
    "FileUse",
    "FileUseTable",
    "FireState",
    "Flag",
    "FlagKind",
    "FlagTable",
    "Journal",
    "JournalTable",
    "Message",
    "MessageTable",
    "QueueItem",
    "QueueItemTable",
    "Receipt",
    "ReceiptTable",
    "Record",
    "Run",
    "RunTable",
    "Schedule",
    "ScheduleTable",
    "SigningKey",
    "SigningKeyTable",
    "Step",
    "StepKind",
    "StepState",
    "StepTable",
    "Thread",
    "ThreadTable",
    "TriggerFire",
    "TriggerFireTable",
    "table_of",
]
