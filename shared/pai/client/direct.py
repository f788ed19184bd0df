"""The direct transport: the engine called in this process, with the same results and events as over HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from pai.client.files import (
    CreateFileUrlInput,
    FileUploadInput,
    FileUrlResult,
    ReadFileInput,
    StoredFileBody,
    UploadedFile,
)
from pai.client.transport import ThreadHeadWatchInput, ThreadListOptions, ThreadWatchInput
from pai.contract.manifest import manifest
from pai.engine import api
from pai.engine.runtime import Runtime
from pai.protocol.errors import NotFound
from pai.protocol.events import ThreadHeadEvent, WatchEvent
from pai.protocol.identity import Identity
from pai.protocol.json import loads
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
from pai.protocol.state import RunState, ThreadListResult, ThreadSummary, TransportState

_LOOK_AGAIN = timedelta(seconds=5)
"""News of a thread that is created could be lost; this is how long that may go unnoticed."""


class DirectTransport:
    """Without a stream: the client polls. `WatchingDirectTransport` has one."""

    def __init__(self, runtime: Runtime, identity: Identity, agent_name: str) -> None:
        """Raises NotFound for an agent that the runtime does not know."""
        self._runtime = runtime
        self._caller = api.Caller(identity, runtime.registry.get(agent_name))

    async def get_manifest(self) -> dict[str, Any]:
        return manifest(self._caller.agent)

    async def list_threads(self, options: ThreadListOptions) -> ThreadListResult:
        return await api.list_threads(
            self._runtime,
            self._caller,
            parent_thread_id=options.parent_thread_id,
            category=options.category,
            status=options.status,
            page_token=options.page_token,
            limit=20 if options.limit is None else options.limit,
            agent=options.agent,
            hidden=options.hidden,
        )

    async def rename_thread(self, thread_id: str, request: RenameRequest, *, key: str) -> ThreadSummary:
        return (await api.rename(self._runtime, self._caller, thread_id, request, key=key)).result

    async def delete_thread(self, thread_id: str, *, key: str) -> None:
        await api.delete(self._runtime, self._caller, thread_id)

    async def get_thread_state(self, thread_id: str) -> TransportState | None:
        return await api.get_state(self._runtime, self._caller, thread_id)

    async def send(self, thread_id: str, request: SendRequest, *, key: str) -> MutationResult:
        return (await api.send(self._runtime, self._caller, thread_id, request, key=key)).result

    async def stop_thread(self, thread_id: str, request: StopThreadRequest, *, key: str) -> MutationResult:
        return (await api.stop_thread(self._runtime, self._caller, thread_id, request, key=key)).result

    async def stop_run(self, thread_id: str, run_id: str, request: StopRunRequest, *, key: str) -> MutationResult:
        return (await api.stop_run(self._runtime, self._caller, thread_id, run_id, request, key=key)).result

    async def regenerate(self, thread_id: str, request: RegenerateRequest, *, key: str) -> MutationResult:
        return (await api.regenerate(self._runtime, self._caller, thread_id, request, key=key)).result

    async def respond_to_action(self, thread_id: str, request: ActionRequest, *, key: str) -> MutationResult:
        return (await api.respond(self._runtime, self._caller, thread_id, request, key=key)).result

    async def write_tool_data(self, thread_id: str, request: ToolDataRequest, *, key: str) -> MutationResult:
        return (await api.write_tool_data(self._runtime, self._caller, thread_id, request, key=key)).result

    async def recall_queued_item(self, thread_id: str, queue_item_id: str, *, key: str) -> MutationResult:
        return (await api.recall(self._runtime, self._caller, thread_id, queue_item_id, key=key)).result

    async def execute_command(self, thread_id: str, name: str, request: CommandRequest, *, key: str) -> Any:
        reply = await api.execute_command(self._runtime, self._caller, thread_id, name, request, key=key)
        return reply.result.output

    async def get_run(self, thread_id: str, run_id: str) -> RunState | None:
        try:
            return await api.get_run(self._runtime, self._caller, thread_id, run_id)
        except NotFound:
            return None

    async def upload_file(self, upload: FileUploadInput, *, key: str) -> UploadedFile:
        return (await api.upload_file(self._runtime, self._caller, upload, key=key)).result

    async def create_file_url(self, request: CreateFileUrlInput) -> FileUrlResult | None:
        return await api.create_file_url(self._runtime, self._caller, request)

    async def read_file(self, request: ReadFileInput) -> StoredFileBody:
        return await api.read_file(self._runtime, self._caller, request)

    async def close(self) -> None:
        """The runtime stays its owner's to close."""


class WatchingDirectTransport(DirectTransport):
    """`hub` is an open `pai.log.hub.Hub` of this process."""

    def __init__(self, runtime: Runtime, identity: Identity, agent_name: str, *, hub: Any) -> None:
        super().__init__(runtime, identity, agent_name)
        self._hub = hub

    async def watch_thread(self, watch: ThreadWatchInput) -> AsyncGenerator[WatchEvent, None]:
        """Ends when the incarnation is deleted; the next watch waits for another one."""
        thread_id, after = watch.thread_id, watch.after
        found = await api.locate(self._runtime, self._caller, thread_id)
        if found is None:
            _established(watch)
            yield {"type": "ready", "threadId": thread_id, "version": None, "sequence": 0, "revision": 0}
            found = await self._created(thread_id)
        continued = after is not None and after.version == found.version
        position = after.sequence if after is not None and continued else None
        async with self._hub.watch(found.version, thread_id=thread_id, after=position) as subscription:
            _established(watch)
            ready = subscription.ready
            yield {
                "type": "ready",
                "threadId": thread_id,
                "version": found.version,
                "sequence": ready.sequence,
                "revision": ready.revision,
            }
            if not continued:
                state = await self.get_thread_state(thread_id)
                if state is not None:
                    yield {"type": "snapshot", "state": state.wire()}
            async for frames in subscription:
                for frame in frames:
                    for event in frame.events if hasattr(frame, "events") else (frame.event,):
                        yield loads(event.data)

    async def watch_thread_heads(self, watch: ThreadHeadWatchInput) -> AsyncGenerator[ThreadHeadEvent, None]:
        async with self._hub.watch_heads(self._caller.owner, self._caller.agent.name) as subscription:
            if watch.on_connection_established is not None:
                watch.on_connection_established()
            yield {"type": "ready"}
            async for items in subscription:
                for item in items:
                    # Instead of a payload: some may have been missed, so the client reads the list as after a connect.
                    yield loads(item) if isinstance(item, bytes) else {"type": "ready"}

    async def _created(self, thread_id: str) -> api.ThreadPosition:
        async with self._hub.watch_heads(self._caller.owner, self._caller.agent.name) as heads:
            while True:
                found = await api.locate(self._runtime, self._caller, thread_id)
                if found is not None:
                    return found
                if heads.ended:
                    await asyncio.sleep(_LOOK_AGAIN.total_seconds())
                else:
                    await heads.next(timeout=_LOOK_AGAIN)


def _established(watch: ThreadWatchInput) -> None:
    if watch.on_connection_established is not None:
        watch.on_connection_established()
