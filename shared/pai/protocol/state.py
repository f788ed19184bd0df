"""What a thread looks like from outside: heads, runs, the queue, and the snapshot that a watcher starts from."""

from enum import StrEnum
from typing import Any, ClassVar, Literal, NotRequired

from typing_extensions import TypedDict

from pai.protocol.usage import UsageSummary, empty_usage
from pai.protocol.wire import WireModel

Message = dict[str, Any]
"""A UIMessage with `metadata.pai` facts and reserved `data-pai-*` parts, as plain JSON (`TransportMessage`)."""


class ThreadStatus(StrEnum):
    idle = "idle"
    running = "running"
    waiting = "waiting"


class RunStatus(StrEnum):
    queued = "queued"
    running = "running"
    waiting = "waiting"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_RUNS


TERMINAL_RUNS = frozenset({RunStatus.completed, RunStatus.failed, RunStatus.cancelled})


class ErrorCode(StrEnum):
    """Codes of tool errors and run errors."""

    stopped = "stopped"
    cancelled = "cancelled"
    superseded = "superseded"
    timeout = "timeout"
    interrupted = "interrupted"
    input_invalid = "input_invalid"
    output_invalid = "output_invalid"
    failed = "failed"
    changed_since_suspension = "changed_since_suspension"
    rate_limited = "rate_limited"
    overloaded = "overloaded"
    context_overflow = "context_overflow"
    auth = "auth"
    provider_error = "provider_error"
    max_steps = "max_steps"
    unknown_tool = "unknown_tool"


FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "steered", "max-steps"]
Initiator = Literal["send", "trigger", "regenerate"]
QueueMode = Literal["queue", "steer"]


class ThreadTitleRecord(WireModel):
    value: str
    source: Literal["user", "generated"]
    updated_at: str


class ThreadErrorRecord(WireModel):
    code: str
    message: str
    run_id: str | None = None
    at: str


class MessageDiagnosticsRecord(WireModel):
    model: str | None = None
    provider: str | None = None
    finish_reason: str | None = None
    attempt: int | None = None
    first_chunk_ms: int | None = None
    duration_ms: int | None = None
    warnings: list[str] | None = None


class ThreadSummary(WireModel):
    """One row of a thread list. `agent`, `hidden` and `owner` are for trusted callers only."""

    thread_id: str
    version: str
    title: ThreadTitleRecord | None = None
    status: ThreadStatus
    category: str | None = None
    parent_thread_id: str | None = None
    metadata: dict[str, Any] = {}
    revision: int
    created_at: str
    updated_at: str
    agent: str | None = None
    hidden: bool | None = None
    owner: str | None = None


class ThreadListResult(WireModel):
    items: list[ThreadSummary]
    next_page_token: str | None = None


class PaiThreadHead(WireModel):
    """`version` is None only before this thread id has a persisted incarnation."""

    nullable: ClassVar[frozenset[str]] = frozenset({"version"})

    thread_id: str
    version: str | None = None
    status: ThreadStatus = ThreadStatus.idle
    title: ThreadTitleRecord | None = None
    metadata: dict[str, Any] = {}


class RunAdmission(WireModel):
    mode: Literal["direct", "queue", "steer"]
    queue_item_id: str | None = None


class RunError(WireModel):
    code: str
    message: str


class RunState(WireModel):
    """A run, discriminated by `status`.

    `started_at`: running, waiting, and terminal runs that had started. `completed_at`: terminal runs. `finish_reason`:
    completed. `error`: failed. `reason`: cancelled, when one was given.
    """

    thread_id: str
    run_id: str
    input_message_ids: list[str] | None = None
    initiator: Initiator
    admission: RunAdmission
    usage: UsageSummary
    metadata: dict[str, Any] = {}
    created_at: str
    status: RunStatus
    started_at: str | None = None
    completed_at: str | None = None
    finish_reason: FinishReason | None = None
    error: RunError | None = None
    reason: str | None = None


class QueuedItem(WireModel):
    queue_item_id: str
    run_id: str
    mode: QueueMode
    messages: list[Message]
    created_at: str


class QueueState(WireModel):
    items: list[QueuedItem] = []
    can_recall: bool = False


class CapabilityState(WireModel):
    can_stop: bool = False
    can_respond_to_actions: bool = False


class FoldingTool(TypedDict):
    text: str
    toolName: str
    dynamic: NotRequired[bool]
    title: NotRequired[str]
    inputEncoding: NotRequired[Literal["json", "text"]]
    toolMetadata: NotRequired[dict[str, Any]]


class FoldingState(TypedDict):
    """What the fold needs to go on mid-part: open part id -> index in parts; raw tool input so far."""

    text: dict[str, int]
    reasoning: dict[str, int]
    tools: dict[str, FoldingTool]


class TransportState(WireModel):
    """The snapshot of a thread, exact as of `sequence` and `revision`."""

    nullable: ClassVar[frozenset[str]] = frozenset({"activeRunId", "error"})

    thread: PaiThreadHead
    messages: list[Message] = []
    runs: list[RunState] = []
    active_run_id: str | None = None
    queue: QueueState = QueueState()
    usage: UsageSummary = empty_usage()
    capabilities: CapabilityState = CapabilityState()
    error: ThreadErrorRecord | None = None
    sequence: int = 0
    revision: int = 0
    folding: dict[str, FoldingState] = {}
