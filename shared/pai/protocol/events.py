"""Events: a chunk or a state change inside PAI's envelope, and what a watch sends besides."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

ResetReason = Literal["lost", "trimmed", "overflow", "version", "order", "failover", "restart"]


class Changes(TypedDict, total=False):
    """A partial state: each record replaces the one with its id; absent means unchanged.

    `messages`: whole ones are appended or replace in place; one without `parts` replaces the facts only.
    """

    thread: dict[str, Any]
    messages: list[dict[str, Any]]
    removedMessageIds: list[str]
    runs: list[dict[str, Any]]
    removedRunIds: list[str]
    activeRunId: str | None
    queue: dict[str, Any]
    usage: dict[str, Any]
    capabilities: dict[str, Any]
    error: dict[str, Any] | None


class _Positioned(TypedDict):
    threadId: str
    version: str
    sequence: int


class ChunkEvent(_Positioned):
    """One UIMessageChunk. `revision` when a transaction made it; a live chunk of a model step carries none."""

    type: Literal["chunk"]
    runId: str
    messageId: str
    revision: NotRequired[int]
    chunk: dict[str, Any]


class UpdateEvent(_Positioned):
    type: Literal["update"]
    revision: int
    changes: Changes


class ResetEvent(_Positioned):
    """Take a snapshot."""

    type: Literal["reset"]
    reason: ResetReason


class DeletedEvent(_Positioned):
    """This incarnation is gone."""

    type: Literal["deleted"]


class ReadyEvent(TypedDict):
    """The first event of a watch: the position that the stream continues from; `version` null before creation."""

    type: Literal["ready"]
    threadId: str
    version: str | None
    sequence: int
    revision: int


class SnapshotEvent(TypedDict):
    type: Literal["snapshot"]
    state: dict[str, Any]


ThreadEvent = ChunkEvent | UpdateEvent | ResetEvent | DeletedEvent
WatchEvent = ThreadEvent | ReadyEvent | SnapshotEvent


class HeadEvent(TypedDict):
    type: Literal["head"]
    summary: dict[str, Any]


class RemovedEvent(TypedDict):
    type: Literal["removed"]
    threadId: str
    version: str


class HeadsReadyEvent(TypedDict):
    type: Literal["ready"]


ThreadHeadEvent = HeadEvent | RemovedEvent | HeadsReadyEvent
