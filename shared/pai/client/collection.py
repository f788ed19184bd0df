"""The threads of one identity with one agent: listing, finding, and watching the list."""

from collections.abc import Callable
from typing import Any, Protocol

from pai.client.backoff import BackoffSettings
from pai.client.data_listeners import DataListener
from pai.client.heads import HeadsWatch
from pai.client.inputs import request
from pai.client.request_context import UNSET, ClientTools, RequestContextSource, Unset
from pai.client.thread import Thread
from pai.client.transport import AgentClientTransport, ThreadListOptions, WatchesThreadHeads
from pai.protocol.errors import TransportError
from pai.protocol.ids import new_id
from pai.protocol.requests import RenameRequest
from pai.protocol.state import ThreadListResult, ThreadStatus, ThreadSummary


class OpensThreads(Protocol):
    def __call__(
        self,
        thread_id: str,
        *,
        client_data: Any = ...,
        client_tools: ClientTools | Unset = ...,
        request_context: RequestContextSource | None = ...,
        on_data: DataListener | None = ...,
    ) -> Thread: ...


class ThreadCollectionClient:
    def __init__(
        self, transport: AgentClientTransport, *, open_thread: OpensThreads, reconnect: BackoffSettings
    ) -> None:
        self._transport = transport
        self._open_thread = open_thread
        self._reconnect = reconnect

    async def list(
        self,
        *,
        parent_thread_id: str | None = None,
        category: str | None = None,
        status: ThreadStatus | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        agent: str | None = None,
        hidden: bool | None = None,
    ) -> ThreadListResult:
        """One page, latest activity first; `limit` is 1 to 100. `agent` and `hidden` are for trusted callers."""
        options = ThreadListOptions(
            parent_thread_id=parent_thread_id,
            category=category,
            status=status,
            page_token=page_token,
            limit=limit,
            agent=agent,
            hidden=hidden,
        )
        return await self._transport.list_threads(options)

    def watch_heads(self, *, on_connection_established: Callable[[], None] | None = None) -> HeadsWatch:
        """Changes of the list as they happen; what changed while there was no connection is found by listing.

        Raises TransportError when the transport cannot watch.
        """
        if not isinstance(self._transport, WatchesThreadHeads):
            raise TransportError("This transport cannot watch the thread list.")
        return HeadsWatch(self._transport, self._reconnect, on_connection_established)

    async def rename(self, thread_id: str, title: str) -> ThreadSummary:
        """Raises NotFound, ValidationFailed."""
        return await self._transport.rename_thread(thread_id, request(RenameRequest, title=title), key=new_id("key"))

    async def delete(self, thread_id: str) -> None:
        """Removes the thread with all that belongs to it. Await it before the same id is used again.

        Work that has started already is cancelled cooperatively.
        """
        await self._transport.delete_thread(thread_id, key=new_id("key"))

    async def find(
        self,
        thread_id: str,
        *,
        client_data: Any = UNSET,
        client_tools: ClientTools | Unset = UNSET,
        request_context: RequestContextSource | None = None,
        on_data: DataListener | None = None,
    ) -> Thread | None:
        """A handle that holds the state already; None when there is no such thread."""
        thread = self._open_thread(
            thread_id,
            client_data=client_data,
            client_tools=client_tools,
            request_context=request_context,
            on_data=on_data,
        )
        state = await thread.refresh()
        return None if state.thread.version is None else thread
