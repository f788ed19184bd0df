"""A handle on one thread: what it says, what happens in it, and everything that can be done to it."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from pai.client.actions import PendingActionView, Response
from pai.client.backoff import BackoffSettings
from pai.client.binding import Binding, to_json
from pai.client.changes import Changes
from pai.client.commands import ThreadCommands
from pai.client.connection import ConnectionState, ThreadConnection, Watcher
from pai.client.data_listeners import DataListener, DataListeners
from pai.client.inputs import (
    ClientSendInput,
    SendAttachmentInput,
    SendQueue,
    optimistic,
    queue_options,
    request,
    user_message,
)
from pai.client.messages import PaiMessage
from pai.client.pending_action import find_pending_action
from pai.client.records import RunState
from pai.client.reducer import Reducer
from pai.client.request_context import UNSET, ClientTools, RequestContext, ThreadHandleOptions, Unset
from pai.client.run import RunHandle
from pai.client.settling import Settling
from pai.client.thread_state import ActionResult, ThreadState
from pai.client.tool_parts import PaiToolPart
from pai.client.transport import AgentClientTransport
from pai.client.view import StateView
from pai.client.watch import StateWatch
from pai.protocol.errors import PaiError, RegenerateInvalid, TransportError
from pai.protocol.ids import new_id
from pai.protocol.requests import (
    ActionRequest,
    CommandRequest,
    MutationResult,
    PendingActionRef,
    RegenerateRequest,
    RenameRequest,
    SendRequest,
    StopRunRequest,
    StopThreadRequest,
    ThreadCreation,
    ToolDataRequest,
)


class Thread:
    """Made without I/O: the thread need not exist, the first accepted send creates it.

    Mutations return when the local state holds what they did.
    """

    def __init__(
        self,
        thread_id: str,
        *,
        transport: AgentClientTransport,
        binding: Binding,
        options: ThreadHandleOptions,
        reconnect: BackoffSettings,
    ) -> None:
        self.thread_id = thread_id
        self.commands = ThreadCommands(self._execute)
        self._transport = transport
        self._binding = binding
        self._options = options
        self._changes = Changes()
        self._reducer = Reducer(thread_id, binding)
        self._listeners = DataListeners(binding)
        if options.on_data is not None:
            self._listeners.subscribe(options.on_data)
        self._connection = ThreadConnection(
            transport,
            self._reducer,
            changes=self._changes,
            observe=self._listeners.observe,
            compare=self._listeners.compare,
            reconnect=reconnect,
        )
        self._view = StateView(self._reducer, binding, recall=self.recall_queued_item)
        self._settling = Settling(self._reducer, self._connection, self._changes)

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    @property
    def connection(self) -> ConnectionState:
        """How the watch is doing; idle while nobody watches."""
        return self._connection.state

    @property
    def connection_error(self) -> PaiError | None:
        """Why the connection is being made again; None when all is well."""
        return self._connection.error

    def get_state(self) -> ThreadState:
        """The latest state that is known here; an empty one before anything is."""
        return self._view.state()

    async def refresh(self) -> ThreadState:
        """The state as the server has it now; an empty one while the thread does not exist."""
        await self._connection.fetch()
        return self.get_state()

    def watch(
        self, *, interval: timedelta | None = None, on_connection_established: Callable[[], None] | None = None
    ) -> StateWatch:
        """Every state from the one that is known here on, until the iterator is closed.

        All iterators of a handle share one connection, which is made again when it breaks. `interval` is for transports
        that are polled. Raises errors that connecting again cannot help, such as Forbidden.
        """

        def look() -> ThreadState | None:
            return self.get_state() if self._reducer.loaded or self._view.has_pending else None

        return StateWatch(self._connection, self._changes, look, Watcher(interval, on_connection_established))

    def subscribe_data(self, listener: DataListener) -> Callable[[], None]:
        """Application data parts that arrive from now on while somebody watches, each once. -> unsubscribe."""
        return self._listeners.subscribe(listener)

    def run(self, run_id: str) -> RunHandle:
        """A handle on a run of this thread, without I/O and without claiming that it exists."""
        return RunHandle(self, run_id)

    def get_pending_action(self, message: PaiMessage, part: PaiToolPart) -> PendingActionView | None:
        """What this part of this message waits for; None when it is stale or waits for nothing."""
        return find_pending_action(self._reducer, self._binding, message, part, respond=self._respond)

    async def send(
        self,
        message: ClientSendInput | None = None,
        *,
        text: str | None = None,
        attachments: Sequence[SendAttachmentInput] = (),
        metadata: Any = None,
        queue: SendQueue | None = None,
        client_data: Any = UNSET,
        client_tools: ClientTools | Unset = UNSET,
        message_id: str | None = None,
        thread: ThreadCreation | Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Say something: `send("hello")`, `send(text=..., attachments=[file])`, or a structured message.

        It shows at once as a pending message, which the admitted one replaces; it goes when the send fails.
        `thread` is only read when this creates the thread. Raises ThreadBusy unless `queue` says how to wait:
        `queue="queue"` for the end of the run, `queue="steer"` for its next step.
        """
        said = user_message(message, text=text, attachments=attachments, metadata=metadata)
        message_id = message_id or new_id("msg")
        body = request(SendRequest, message=said, message_id=message_id, queue=queue_options(queue), thread=thread)
        pending = optimistic(message_id, said, attachments, self._binding)
        self._view.add_pending(pending)
        self._changes.notify()
        try:
            body = body.model_copy(update=await self._context(client_data, client_tools))
            result = await self._transport.send(self.thread_id, body, key=new_id("key"))
        except BaseException:
            self._view.drop_pending(pending)
            self._changes.notify()
            raise
        self._view.settle_pending(message_id, version=result.version, revision=result.revision)
        return _required(await self._settled(result))

    async def regenerate(
        self,
        *,
        message_id: str,
        replacement: ClientSendInput | None = None,
        client_data: Any = UNSET,
        client_tools: ClientTools | Unset = UNSET,
    ) -> RunHandle:
        """Rewind to an admitted user message and run it again, with other content if `replacement` is given.

        Raises ThreadBusy, RegenerateInvalid.
        """
        said = None if replacement is None else user_message(replacement)
        body = request(RegenerateRequest, message_id=message_id, replacement=said)
        return await self._regenerate(body, client_data, client_tools)

    async def retry(self, *, client_data: Any = UNSET, client_tools: ClientTools | Unset = UNSET) -> RunHandle:
        """Regenerate from the latest input. Raises RegenerateInvalid when there is none."""
        if not self._reducer.loaded:
            await self.refresh()
        for message in reversed(self._reducer.messages):
            facts = message.metadata.pai
            if facts.relation == "input":
                # By its run, so that a turn of several queued inputs keeps them all.
                body = request(RegenerateRequest, run_id=facts.run_id)
                return await self._regenerate(body, client_data, client_tools)
        raise RegenerateInvalid("The thread has no input yet.")

    async def stop(
        self, *, reason: str | None = None, continue_with: Literal["none", "steer", "all"] = "none"
    ) -> ActionResult:
        """Cancel what runs or waits. `continue_with` says which queued inputs go on; the others are given back."""
        body = request(StopThreadRequest, reason=reason, continue_with=continue_with)
        return await self._settled(await self._transport.stop_thread(self.thread_id, body, key=new_id("key")))

    async def rename(self, title: str) -> ThreadState:
        """Raises NotFound, ValidationFailed."""
        body = request(RenameRequest, title=title)
        summary = await self._transport.rename_thread(self.thread_id, body, key=new_id("key"))
        await self._settling.reach(summary.version, summary.revision)
        return self.get_state()

    async def write_tool_data(self, *, message_id: str, tool_call_id: str, name: str, value: Any) -> ActionResult:
        """Set data that the tool declares as writable by the client, while its call is open.

        Raises ValidationFailed, CallSettled, NotFound.
        """
        given = to_json(value, at="value")
        body = request(ToolDataRequest, message_id=message_id, tool_call_id=tool_call_id, name=name, value=given)
        body = body.model_copy(update=await self._context())
        return await self._settled(await self._transport.write_tool_data(self.thread_id, body, key=new_id("key")))

    async def recall_queued_item(self, queue_item_id: str) -> ActionResult:
        """Take a queued input back. Raises QueueItemAdmitted, NotFound."""
        key = new_id("key")
        return await self._settled(await self._transport.recall_queued_item(self.thread_id, queue_item_id, key=key))

    async def _respond(self, ref: PendingActionRef, response: Response) -> ActionResult:
        body = request(ActionRequest, ref=ref, response_id=new_id("response"), response=response)
        body = body.model_copy(update=await self._context())
        return await self._settled(await self._transport.respond_to_action(self.thread_id, body, key=new_id("key")))

    async def _regenerate(
        self, body: RegenerateRequest, client_data: Any, client_tools: ClientTools | Unset
    ) -> RunHandle:
        body = body.model_copy(update=await self._context(client_data, client_tools))
        return _required(await self._settled(await self._transport.regenerate(self.thread_id, body, key=new_id("key"))))

    async def _stop_run(self, run_id: str, *, reason: str | None) -> ActionResult:
        body = request(StopRunRequest, reason=reason)
        return await self._settled(await self._transport.stop_run(self.thread_id, run_id, body, key=new_id("key")))

    async def _execute(self, name: str, given: Any, client_data: Any) -> Any:
        context = await self._context(client_data)
        context.pop("client_tools", None)
        body = request(CommandRequest, input=to_json(given, at="input"), **context)
        output = await self._transport.execute_command(self.thread_id, name, body, key=new_id("key"))
        return self._binding.command_output(name, output)

    async def _get_run(self, run_id: str) -> RunState | None:
        run = await self._transport.get_run(self.thread_id, run_id)
        return None if run is None else self._binding.run(run)

    async def _context(self, client_data: Any = UNSET, client_tools: ClientTools | Unset = UNSET) -> dict[str, Any]:
        return await self._options.for_request(RequestContext(client_data=client_data, client_tools=client_tools))

    async def _settled(self, result: MutationResult) -> ActionResult:
        await self._settling.reach(result.version, result.revision)
        run = None
        if result.run is not None:
            run = RunHandle(self, result.run.run_id, version=result.version, revision=result.revision)
        cancelled = tuple(self._view.queued_item(item) for item in result.cancelled or ())
        return ActionResult(state=self.get_state(), run=run, cancelled=cancelled)

    async def _turns(self, *, interval: timedelta | None = None) -> AsyncGenerator[None, None]:
        """A turn for every change while the state is known to be the server's."""
        watcher = Watcher(interval, None)
        self._connection.attach(watcher)
        try:
            while True:
                seen = self._changes.count
                if self._connection.failure is not None:
                    raise self._connection.failure
                if self._connection.fresh:
                    yield
                await self._changes.after(seen)
        finally:
            await self._connection.leave(watcher)


def _required(result: ActionResult) -> RunHandle:
    if result.run is None:
        raise TransportError("The server did not say which run it created.")
    return result.run
