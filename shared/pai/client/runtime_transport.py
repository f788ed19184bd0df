"""What carries the requests of a trusted runtime client, beyond those of every client."""

from dataclasses import dataclass
from typing import Protocol

from pai.client.transport import AgentClientTransport
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.state import ThreadListResult, ThreadStatus
from pai.protocol.trusted import (
    AppendMessageRequest,
    LifecycleMessage,
    LookUpMessagesRequest,
    MetadataRecord,
    MetadataRequest,
    VisibilityRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllThreadsOptions:
    """Across owners and agents: None for either means all. `hidden` None means hidden and other threads."""

    owner: str | None = None
    agent: str | None = None
    hidden: bool | None = None
    parent_thread_id: str | None = None
    category: str | None = None
    status: ThreadStatus | None = None
    page_token: str | None = None
    limit: int | None = None


class RuntimeClientTransport(AgentClientTransport, Protocol):
    """Servers refuse every one of these to callers that are not trusted: Forbidden."""

    async def list_all_threads(self, options: AllThreadsOptions) -> ThreadListResult: ...

    async def append_message(self, thread_id: str, request: AppendMessageRequest, *, key: str) -> LifecycleMessage: ...

    async def look_up_messages(self, thread_id: str, request: LookUpMessagesRequest) -> list[LifecycleMessage]: ...

    async def set_visibility(self, thread_id: str, request: VisibilityRequest, *, key: str) -> MutationResult: ...

    async def read_metadata(self, thread_id: str, *, run_id: str | None) -> MetadataRecord: ...

    async def change_metadata(
        self, thread_id: str, request: MetadataRequest, *, run_id: str | None, key: str
    ) -> MetadataRecord: ...

    async def fire_trigger(self, name: str, request: TriggerRequest, *, key: str) -> MutationResult | None: ...
