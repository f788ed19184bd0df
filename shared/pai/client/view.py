"""The state that a handle shows: what was reduced, and the inputs that wait for admission."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage, PaiMessage, PaiPendingInputMessage
from pai.client.reducer import Reducer
from pai.client.thread_state import ActionResult, QueuedItemView, ThreadQueueView, ThreadState
from pai.fold.projection import project
from pai.protocol.state import QueuedItem, QueueState


@dataclass(slots=True)
class _Pending:
    """`settled`: the transaction that admitted or queued it, once the server has answered."""

    message: PaiPendingInputMessage
    settled: tuple[str, int] | None = None


class StateView:
    """Gives the same object while nothing changed."""

    def __init__(self, reducer: Reducer, binding: Binding, *, recall: Callable[[str], Awaitable[ActionResult]]) -> None:
        self._reducer = reducer
        self._binding = binding
        self._recall = recall
        self._pending: dict[str, _Pending] = {}
        self._queue: tuple[QueueState, ThreadQueueView] = (reducer.queue, ThreadQueueView())
        self._shown: ThreadState | None = None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def add_pending(self, message: PaiPendingInputMessage) -> None:
        self._pending[message.id] = _Pending(message)

    def settle_pending(self, message_id: str, *, version: str, revision: int) -> None:
        """The server has taken it: it shows until the state holds that revision."""
        if message_id in self._pending:
            self._pending[message_id].settled = (version, revision)

    def drop_pending(self, message: PaiPendingInputMessage) -> None:
        """The send failed. Another one with the same id keeps its message."""
        pending = self._pending.get(message.id)
        if pending is not None and pending.message is message:
            del self._pending[message.id]

    def state(self) -> ThreadState:
        reducer = self._reducer
        state = ThreadState(
            thread=reducer.head,
            messages=self._messages(),
            runs=reducer.runs,
            active_run_id=reducer.active_run_id,
            queue=self._queue_view(),
            usage=reducer.usage,
            capabilities=reducer.capabilities,
            error=reducer.error,
        )
        if self._shown is None or not _same(self._shown, state):
            self._shown = state
        return self._shown

    def queued_item(self, item: QueuedItem) -> QueuedItemView:
        return QueuedItemView(
            queue_item_id=item.queue_item_id,
            run_id=item.run_id,
            mode=item.mode,
            messages=tuple(PaiCanonicalMessage(project(message), self._binding) for message in item.messages),
            created_at=item.created_at,
            _recall=self._recall,
        )

    def _messages(self) -> tuple[PaiMessage, ...]:
        messages = self._reducer.messages
        if not self._pending:
            return messages
        queued = {message["id"] for item in self._reducer.queue.items for message in item.messages}
        for message_id, pending in list(self._pending.items()):
            taken = pending.settled is not None and self._reducer.holds(*pending.settled)
            if taken or self._reducer.has_message(message_id) or message_id in queued:
                del self._pending[message_id]
        return (*messages, *(pending.message for pending in self._pending.values()))

    def _queue_view(self) -> ThreadQueueView:
        known, view = self._queue
        queue = self._reducer.queue
        if known is not queue:
            items = tuple(self.queued_item(item) for item in queue.items)
            view = ThreadQueueView(items, queue.can_recall)
            self._queue = (queue, view)
        return view


def _same(left: ThreadState, right: ThreadState) -> bool:
    return (
        left.thread is right.thread
        and left.messages == right.messages
        and left.runs is right.runs
        and left.active_run_id == right.active_run_id
        and left.queue is right.queue
        and left.usage is right.usage
        and left.capabilities is right.capabilities
        and left.error is right.error
    )
