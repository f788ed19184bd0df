"""The client of trusted code: what every client does, and the server-only side of messages, metadata and triggers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pai.client.agent_client import AgentClient
from pai.client.backoff import BackoffSettings
from pai.client.binding import Binding, to_json
from pai.client.collection import ThreadCollectionClient
from pai.client.data_listeners import DataListener
from pai.client.inputs import SendQueue, queue_options, request
from pai.client.messages import PaiCanonicalMessage
from pai.client.request_context import UNSET, ClientTools, RequestContextSource, ThreadHandleOptions, Unset
from pai.client.runtime_transport import AllThreadsOptions, RuntimeClientTransport
from pai.client.thread import Thread
from pai.contract.agent import Agent
from pai.fold.projection import project
from pai.protocol.ids import new_id
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.state import ThreadListResult, ThreadStatus
from pai.protocol.trusted import (
    AdminMessageInput,
    AppendMessageRequest,
    LookUpMessagesRequest,
    MetadataRecord,
    MetadataRequest,
    Visibility,
    VisibilityRequest,
)
from pai.protocol.trusted import LifecycleMessage as WireLifecycleMessage

if TYPE_CHECKING:
    from pai.protocol.identity import Identity


class LifecycleMessage(PaiCanonicalMessage):
    """A canonical message with who sees it, and the metadata that only trusted code sees."""

    __slots__ = ("private_metadata", "visibility")

    def __init__(self, wire: WireLifecycleMessage, binding: Binding) -> None:
        message = {"id": wire.id, "role": wire.role, "metadata": wire.metadata, "parts": wire.parts}
        super().__init__(project(message), binding)
        self.visibility: Visibility = wire.visibility
        self.private_metadata = wire.private_metadata


@dataclass(frozen=True, slots=True)
class RuntimeThreadMessageClient:
    """The messages of one thread, also those that its owner does not see."""

    thread_id: str
    _transport: RuntimeClientTransport
    _binding: Binding

    async def get_many(self, message_ids: Sequence[str]) -> list[LifecycleMessage]:
        """At most 100, in this order; those that do not exist are left out. Raises NotFound (thread)."""
        body = request(LookUpMessagesRequest, message_ids=list(message_ids))
        found = await self._transport.look_up_messages(self.thread_id, body)
        return [LifecycleMessage(message, self._binding) for message in found]

    async def append(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        role: str = "assistant",
        visibility: Visibility = "all",
        metadata: Any = None,
        private_metadata: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> LifecycleMessage:
        """A text, or UIMessage parts, at the end of the thread. Nothing is started by it; while a run works it stands
        before the run's next step. Raises NotFound, ValidationFailed, MessageConflict."""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(part) for part in content]
        given = None if metadata is None else to_json(metadata, at="metadata")
        message = request(AdminMessageInput, role=role, parts=parts, metadata=given)
        private = None if private_metadata is None else dict(private_metadata)
        body = request(
            AppendMessageRequest,
            message=message,
            message_id=message_id or new_id("msg"),
            visibility=visibility,
            private_metadata=private,
        )
        appended = await self._transport.append_message(self.thread_id, body, key=new_id("key"))
        return LifecycleMessage(appended, self._binding)

    async def update_visibility(self, message_ids: Sequence[str], *, visibility: Visibility) -> None:
        """All of them, or none when one does not exist. Raises NotFound, ThreadBusy (one is still open)."""
        body = request(VisibilityRequest, message_ids=list(message_ids), visibility=visibility)
        await self._transport.set_visibility(self.thread_id, body, key=new_id("key"))


@dataclass(frozen=True, slots=True)
class RuntimeMetadataClient:
    """The metadata of a thread or of one of its runs."""

    thread_id: str
    run_id: str | None
    _transport: RuntimeClientTransport

    async def get(self) -> MetadataRecord:
        """Raises NotFound."""
        return await self._transport.read_metadata(self.thread_id, run_id=self.run_id)

    async def update(
        self, metadata: Mapping[str, Any] | None = None, *, private: Mapping[str, Any] | None = None
    ) -> MetadataRecord:
        """Sets keys; the others stay. Raises NotFound, ValidationFailed."""
        body = request(
            MetadataRequest,
            metadata=None if metadata is None else dict(metadata),
            private_metadata=None if private is None else dict(private),
        )
        key = new_id("key")
        return await self._transport.change_metadata(self.thread_id, body, run_id=self.run_id, key=key)


@dataclass(frozen=True, slots=True)
class RuntimeTriggerClient:
    _transport: RuntimeClientTransport

    async def fire(
        self,
        name: str,
        input: Any = None,
        *,
        thread_id: str | None = None,
        queue: SendQueue | None = None,
        client_data: Any = None,
        key: str | None = None,
    ) -> MutationResult | None:
        """Fires a trigger that may be called; None when it had nothing to send. The same `key` fires once.

        Raises NotFound (trigger), ValidationFailed, QueueFull, and what the trigger raises.
        """
        given = to_json(input, at="input")
        waits = queue_options(queue)
        body = request(TriggerRequest, thread_id=thread_id, input=given, queue=waits, client_data=client_data)
        return await self._transport.fire_trigger(name, body, key=key or new_id("key"))


class RuntimeThread(Thread):
    """`messages` and `metadata` are the server-only side; the state shows every message, whoever sees it, as of the
    latest snapshot."""

    def __init__(self, thread_id: str, *, transport: RuntimeClientTransport, binding: Binding, **more: Any) -> None:
        super().__init__(thread_id, transport=transport, binding=binding, **more)
        self.messages = RuntimeThreadMessageClient(thread_id, transport, binding)
        self.metadata = RuntimeMetadataClient(thread_id, None, transport)
        self._runtime_transport = transport

    def run_metadata(self, run_id: str) -> RuntimeMetadataClient:
        return RuntimeMetadataClient(self.thread_id, run_id, self._runtime_transport)


class RuntimeThreadCollection(ThreadCollectionClient):
    def __init__(self, transport: RuntimeClientTransport, **more: Any) -> None:
        super().__init__(transport, **more)
        self._runtime_transport = transport

    async def list_all(
        self,
        *,
        owner: str | None = None,
        agent: str | None = None,
        hidden: bool | None = None,
        parent_thread_id: str | None = None,
        category: str | None = None,
        status: ThreadStatus | None = None,
        page_token: str | None = None,
        limit: int | None = None,
    ) -> ThreadListResult:
        """One page of the threads of all owners and agents, or of those named; hidden ones too, unless `hidden` says
        which. The items name their `owner` and `agent`."""
        options = AllThreadsOptions(
            owner=owner,
            agent=agent,
            hidden=hidden,
            parent_thread_id=parent_thread_id,
            category=category,
            status=status,
            page_token=page_token,
            limit=limit,
        )
        return await self._runtime_transport.list_all_threads(options)


class RuntimeAgentClient(AgentClient):
    """See `create_runtime_client`."""

    threads: RuntimeThreadCollection

    def __init__(self, transport: RuntimeClientTransport, binding: Binding, *, reconnect: BackoffSettings) -> None:
        super().__init__(transport, binding, reconnect=reconnect)
        self._runtime_transport = transport
        self.threads = RuntimeThreadCollection(transport, open_thread=self.thread, reconnect=reconnect)
        self.triggers = RuntimeTriggerClient(transport)

    def thread(
        self,
        thread_id: str,
        *,
        client_data: Any = UNSET,
        client_tools: ClientTools | Unset = UNSET,
        request_context: RequestContextSource | None = None,
        on_data: DataListener | None = None,
    ) -> RuntimeThread:
        """A handle, without I/O, as of any client."""
        options = ThreadHandleOptions(
            client_data=client_data, client_tools=client_tools, request_context=request_context, on_data=on_data
        )
        return RuntimeThread(
            thread_id,
            transport=self._runtime_transport,
            binding=self._binding,
            options=options,
            reconnect=self._reconnect,
        )


def create_runtime_client(
    transport: RuntimeClientTransport, contract: Agent | None = None, *, reconnect: BackoffSettings | None = None
) -> RuntimeAgentClient:
    """The client of trusted code over a transport of its own kind.

    client = create_runtime_client(create_runtime_http_transport(url, owner="anna", headers=credentials))
    """
    return RuntimeAgentClient(transport, Binding(contract), reconnect=reconnect or BackoffSettings())


def create_runtime_direct_transport(
    runtime: Any, identity: "Identity", agent_name: str, *, owner: str | None = None, hub: Any = None
) -> RuntimeClientTransport:
    """As `create_direct_transport`, for a trusted identity; `owner` says whose threads, as over HTTP.

    Raises NotFound for an agent that the runtime does not know, Forbidden for an identity that is not trusted,
    ValidationFailed for an owner that cannot be.
    """
    from pai.client.runtime_direct import RuntimeDirectTransport, WatchingRuntimeDirectTransport

    if hub is None:
        return RuntimeDirectTransport(runtime, identity, agent_name, owner=owner)
    return WatchingRuntimeDirectTransport(runtime, identity, agent_name, owner=owner, hub=hub)
