"""The client of one agent: the same surface over every transport."""

from types import TracebackType
from typing import Any, Self

from pai.client.backoff import BackoffSettings
from pai.client.binding import Binding
from pai.client.collection import ThreadCollectionClient
from pai.client.data_listeners import DataListener
from pai.client.files import FilesClient
from pai.client.request_context import UNSET, ClientTools, RequestContextSource, ThreadHandleOptions, Unset
from pai.client.thread import Thread
from pai.client.transport import AgentClientTransport
from pai.contract.agent import Agent
from pai.protocol.errors import ValidationFailed
from pai.protocol.ids import ID_RULE, is_id, new_id


class AgentClient:
    """See `create_agent_client`."""

    def __init__(self, transport: AgentClientTransport, binding: Binding, *, reconnect: BackoffSettings) -> None:
        self._transport = transport
        self._binding = binding
        self._reconnect = reconnect
        self.threads = ThreadCollectionClient(transport, open_thread=self.thread, reconnect=reconnect)
        self.files = FilesClient(transport)

    async def get_manifest(self) -> dict[str, Any]:
        """What the server says about the agent, as JSON.

        Once it was read, an unbound client knows which tools wait for an output, too.
        """
        manifest = await self._transport.get_manifest()
        self._binding.learn(manifest)
        return manifest

    def thread(
        self,
        thread_id: str,
        *,
        client_data: Any = UNSET,
        client_tools: ClientTools | Unset = UNSET,
        request_context: RequestContextSource | None = None,
        on_data: DataListener | None = None,
    ) -> Thread:
        """A handle, without I/O: it does not claim that the thread exists. `threads.find` asks.

        Raises ValidationFailed for what cannot be an id.

        `client_data` and `client_tools` go along with later sends, regenerations, actions and tool data;
        `request_context` is asked for each of them, and wins; an explicit option of a request wins over both. `on_data`
        gets application data parts.
        """
        if not is_id(thread_id):
            raise ValidationFailed.at("threadId", ID_RULE)
        options = ThreadHandleOptions(
            client_data=client_data, client_tools=client_tools, request_context=request_context, on_data=on_data
        )
        return Thread(
            thread_id, transport=self._transport, binding=self._binding, options=options, reconnect=self._reconnect
        )

    def new_thread_id(self) -> str:
        return new_id("thread")

    async def close(self) -> None:
        """Closes the transport; watches that are still open end with an error."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def create_agent_client(
    transport: AgentClientTransport, contract: Agent | None = None, *, reconnect: BackoffSettings | None = None
) -> AgentClient:
    """The high-level client over a transport.

        client = create_agent_client(create_http_transport("http://localhost:8000/api/pai/main"))

    Bound to a contract, metadata, tool inputs and outputs, tool data, suspensions and application data are read as the
    declared types; unbound they are JSON. `reconnect` says how long to wait between attempts to watch again.
    """
    return AgentClient(transport, Binding(contract), reconnect=reconnect or BackoffSettings())
