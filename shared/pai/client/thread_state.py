"""What a thread looks like to an application. Objects are values; newer states share what did not change."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pai.client.messages import PaiMessage, PaiQueuedMessage
from pai.client.records import PaiThreadHead, RunState
from pai.protocol.state import CapabilityState, QueueMode, ThreadErrorRecord
from pai.protocol.usage import UsageSummary, empty_usage

if TYPE_CHECKING:
    from pai.client.run import RunHandle

ThreadCapabilityView = CapabilityState


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedItemView:
    """An input that waits for its turn. `messages` holds at least one."""

    queue_item_id: str
    run_id: str
    mode: QueueMode
    messages: tuple[PaiQueuedMessage, ...]
    created_at: str
    _recall: Callable[[str], "Awaitable[ActionResult]"] = field(repr=False, compare=False)

    async def recall(self) -> "ActionResult":
        """Take it out of the queue; its run is cancelled, and the transcript never hears of it.

        Raises QueueItemAdmitted when it came to its turn meanwhile.
        """
        return await self._recall(self.queue_item_id)


@dataclass(frozen=True, slots=True)
class ThreadQueueView:
    items: tuple[QueuedItemView, ...] = ()
    can_recall: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """`messages` is the canonical render order. `active_run_id` is None while a run waits. Queued inputs stay in
    `queue` until they are admitted."""

    thread: PaiThreadHead
    messages: tuple[PaiMessage, ...] = ()
    runs: tuple[RunState, ...] = ()
    active_run_id: str | None = None
    queue: ThreadQueueView = ThreadQueueView()
    usage: UsageSummary = field(default_factory=empty_usage)
    capabilities: ThreadCapabilityView = field(default_factory=ThreadCapabilityView)
    error: ThreadErrorRecord | None = None

    def run(self, run_id: str) -> RunState | None:
        """The run with that id; None when it is not there."""
        return next((run for run in self.runs if run.run_id == run_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What a command did. `run`: the run that it created, resumed or stopped. `state`: after the mutation settled.

    `cancelled`: queued inputs that a stop dropped, so that their text can go back into a composer.
    """

    state: ThreadState
    run: "RunHandle | None" = None
    cancelled: tuple[QueuedItemView, ...] = ()
