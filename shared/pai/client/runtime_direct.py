"""The trusted surface in the same process."""

from typing import Any

from pai.client.direct import DirectTransport, WatchingDirectTransport
from pai.client.runtime_transport import AllThreadsOptions
from pai.engine import api
from pai.engine.runtime import Runtime
from pai.protocol.identity import Identity
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.state import ThreadListResult
from pai.protocol.trusted import (
    AppendMessageRequest,
    LifecycleMessage,
    LookUpMessagesRequest,
    MetadataRecord,
    MetadataRequest,
    VisibilityRequest,
)


class RuntimeDirectTransport(DirectTransport):
    """Without a stream: the client polls. `WatchingRuntimeDirectTransport` has one."""

    def __init__(
        self, runtime: Runtime, identity: Identity, agent_name: str, *, owner: str | None, **more: Any
    ) -> None:
        """Raises NotFound for an agent that the runtime does not know, Forbidden when nobody trusts the identity,
        ValidationFailed for an owner that cannot be."""
        super().__init__(runtime, identity, agent_name, **more)
        self._caller = api.Caller(identity, runtime.registry.get(agent_name), _parsed(owner))
        self._caller.require_trust()

    async def list_all_threads(self, options: AllThreadsOptions) -> ThreadListResult:
        return await api.list_all_threads(
            self._runtime,
            self._caller.identity,
            owner=_parsed(options.owner),
            agent=options.agent,
            hidden=options.hidden,
            parent_thread_id=options.parent_thread_id,
            category=options.category,
            status=options.status,
            page_token=options.page_token,
            limit=20 if options.limit is None else options.limit,
        )

    async def append_message(self, thread_id: str, request: AppendMessageRequest, *, key: str) -> LifecycleMessage:
        return (await api.append_message(self._runtime, self._caller, thread_id, request, key=key)).result

    async def look_up_messages(self, thread_id: str, request: LookUpMessagesRequest) -> list[LifecycleMessage]:
        return (await api.get_messages(self._runtime, self._caller, thread_id, request)).messages

    async def set_visibility(self, thread_id: str, request: VisibilityRequest, *, key: str) -> MutationResult:
        return (await api.set_visibility(self._runtime, self._caller, thread_id, request, key=key)).result

    async def read_metadata(self, thread_id: str, *, run_id: str | None) -> MetadataRecord:
        return await api.read_metadata(self._runtime, self._caller, thread_id, run_id=run_id)

    async def change_metadata(
        self, thread_id: str, request: MetadataRequest, *, run_id: str | None, key: str
    ) -> MetadataRecord:
        reply = await api.change_metadata(self._runtime, self._caller, thread_id, request, run_id=run_id, key=key)
        return reply.result

    async def fire_trigger(self, name: str, request: TriggerRequest, *, key: str) -> MutationResult | None:
        return (await api.fire_trigger(self._runtime, self._caller, name, request, key=key)).result


def _parsed(owner: str | None) -> str | None:
    return None if owner is None else Identity.parse_owner(owner)


class WatchingRuntimeDirectTransport(RuntimeDirectTransport, WatchingDirectTransport):
    """`hub` is an open `pai.log.hub.Hub` of this process."""
