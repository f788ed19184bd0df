"""What carries a client's requests to a thread's owner: the lower-level delivery SPI.

A transport hands over the wire's own state and events; they feed the private reducer and are no observation API. Which
transport is chosen changes latency, never the shape of the public state.

Errors are those of `pai.protocol.errors`: what the server answers, and `TransportError` when it cannot be reached or
answers something else than the protocol.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pai.client.files import (
    CreateFileUrlInput,
    FileUploadInput,
    FileUrlResult,
    ReadFileInput,
    StoredFileBody,
    UploadedFile,
)
from pai.protocol.events import ThreadHeadEvent, WatchEvent
from pai.protocol.requests import (
    ActionRequest,
    CommandRequest,
    MutationResult,
    RegenerateRequest,
    RenameRequest,
    SendRequest,
    StopRunRequest,
    StopThreadRequest,
    ToolDataRequest,
)
from pai.protocol.state import RunState, ThreadListResult, ThreadStatus, ThreadSummary, TransportState


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadListOptions:
    """`limit` is 1 to 100 and 20 by default. `agent` and `hidden` are for trusted callers only."""

    parent_thread_id: str | None = None
    category: str | None = None
    status: ThreadStatus | None = None
    page_token: str | None = None
    limit: int | None = None
    agent: str | None = None
    hidden: bool | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the events of one incarnation of a thread."""

    version: str
    sequence: int

    def __str__(self) -> str:
        """The event id of the wire: `{version}:{sequence}`."""
        return f"{self.version}:{self.sequence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWatchInput:
    """`after`: go on right behind that position. `on_connection_established` is called once the subscription is usable,
    even when the stream is still quiet."""

    thread_id: str
    after: Position | None = None
    on_connection_established: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHeadWatchInput:
    on_connection_established: Callable[[], None] | None = None


class AgentClientTransport(Protocol):
    """Every mutation carries a `key`: sent again with the same key and the same request it takes effect once, so that a
    transport may repeat it when a connection breaks."""

    async def get_manifest(self) -> dict[str, Any]: ...

    async def list_threads(self, options: ThreadListOptions) -> ThreadListResult: ...

    async def rename_thread(self, thread_id: str, request: RenameRequest, *, key: str) -> ThreadSummary: ...

    async def delete_thread(self, thread_id: str, *, key: str) -> None: ...

    async def get_thread_state(self, thread_id: str) -> TransportState | None: ...

    async def send(self, thread_id: str, request: SendRequest, *, key: str) -> MutationResult: ...

    async def regenerate(self, thread_id: str, request: RegenerateRequest, *, key: str) -> MutationResult: ...

    async def stop_thread(self, thread_id: str, request: StopThreadRequest, *, key: str) -> MutationResult: ...

    async def stop_run(self, thread_id: str, run_id: str, request: StopRunRequest, *, key: str) -> MutationResult: ...

    async def respond_to_action(self, thread_id: str, request: ActionRequest, *, key: str) -> MutationResult: ...

    async def write_tool_data(self, thread_id: str, request: ToolDataRequest, *, key: str) -> MutationResult: ...

    async def recall_queued_item(self, thread_id: str, queue_item_id: str, *, key: str) -> MutationResult: ...

    async def execute_command(self, thread_id: str, name: str, request: CommandRequest, *, key: str) -> Any: ...

    async def get_run(self, thread_id: str, run_id: str) -> RunState | None: ...

    async def upload_file(self, upload: FileUploadInput, *, key: str) -> UploadedFile: ...

    async def create_file_url(self, request: CreateFileUrlInput) -> FileUrlResult | None: ...

    async def read_file(self, request: ReadFileInput) -> StoredFileBody: ...

    async def close(self) -> None: ...


@runtime_checkable
class WatchesThreads(Protocol):
    """A transport without this is polled for snapshots."""

    def watch_thread(self, watch: ThreadWatchInput) -> AsyncGenerator[WatchEvent, None]:
        """The first event is `ready`. Where the stream cannot go on from `after`, or none was given, a `snapshot` or a
        `reset` comes next. The iterator ends when the connection does; the client opens the next one."""
        ...


@runtime_checkable
class WatchesThreadHeads(Protocol):
    """A transport without this cannot watch the thread list."""

    def watch_thread_heads(self, watch: ThreadHeadWatchInput) -> AsyncGenerator[ThreadHeadEvent, None]:
        """Changes only, after a first `ready`."""
        ...
