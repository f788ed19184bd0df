"""Taking over a thread's steps from whoever runs them: the one primitive of stop, expiry and release.

First the fences are raised in Redis, so that no chunk of the old attempts is published any more; what was published is
read; then a transaction checks that the steps are still the ones that were fenced, folds the tail into the message and
settles or resets them. When the process dies in between, the old holder finds itself fenced and abandons the step, and
its lease runs out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.locked import STEPS_LIVE
from pai.engine.publication import Publication
from pai.engine.runtime import Runtime
from pai.engine.transaction import ThreadTransaction
from pai.fold import Fold, FoldError
from pai.log.batches import LogRead, LogState, PublishStatus
from pai.log.entries import EntryKind, ResetReason
from pai.log.errors import LogError
from pai.log.event_log import soon
from pai.protocol.json import loads
from pai.store.store import fetch_all
from pai.store.tables import Message, MessageTable, Step, StepState, Thread, table_of

_MESSAGE = table_of(MessageTable)
_OPEN = select(_MESSAGE.c.message_id, _MESSAGE.c.stored_sequence).where(
    _MESSAGE.c.version == bindparam("version"), _MESSAGE.c.open.is_(True)
)
_LIVE_LOCKED = STEPS_LIVE.with_for_update()
TRIES = 3


class StepsChanged(Exception):
    """A step was claimed, re-claimed or created between the fence and the lock."""


@dataclass(slots=True)
class Fenced:
    """What is known once the fences are up: the steps as they were, and the log's tail of the open messages.

    `blind`: the log could not be fenced or read, so whoever runs the steps may still publish under its epoch.
    """

    version: str
    epoch: int
    steps: dict[str, int] = field(default_factory=dict)
    log: LogRead = field(default_factory=lambda: LogRead(LogState.MISSING))
    blind: bool = False

    def holds(self, step: Step) -> bool:
        """Whether a step is still the one that was fenced. What was not running needs no fence."""
        return step.state != StepState.running or self.steps.get(step.step_id) == step.attempt


Which = Callable[[Step], bool]
"""Whether a running step is to be fenced."""


def none_of_them(step: Step) -> bool:
    return False


async def fence(runtime: Runtime, *, version: str, epoch: int, which: Which) -> Fenced:
    """Raises the fences of those running steps of a thread, and reads what its open messages have got so far."""
    async with runtime.store.autocommit() as connection:
        running, positions = await _running(connection, version, which)
    return await _fence(runtime, version, epoch, running, positions)


async def _running(
    connection: AsyncConnection, version: str, which: Which, *, locked: bool = False
) -> tuple[list[Step], dict[str, int]]:
    """The running steps that are to be fenced, and how far each open message is stored."""
    steps, messages = await fetch_all(
        connection, [(_LIVE_LOCKED if locked else STEPS_LIVE, {"version": version}), (_OPEN, {"version": version})]
    )
    live = [Step.of(row) for row in steps]
    running = [step for step in live if step.state == StepState.running and which(step)]
    return running, {row["message_id"]: row["stored_sequence"] for row in messages}


async def _fence(
    runtime: Runtime, version: str, epoch: int, running: Sequence[Step], positions: Mapping[str, int]
) -> Fenced:
    fenced = Fenced(version, epoch, {step.step_id: step.attempt for step in running})
    try:
        async with soon():
            if running:
                fences = {step.number: step.attempt + 1 for step in running}
                answer = await runtime.log.fence(version, epoch=epoch, fences=fences)
                fenced.blind = answer.status is not PublishStatus.PUBLISHED
            if not fenced.blind and positions:
                fenced.log = await runtime.log.read_messages_after(version, positions=positions)
    except LogError:
        fenced.blind = True
    return fenced


def adopt_tail(tx: ThreadTransaction, message: Message, fenced: Fenced) -> Fold:
    """Takes what was streamed into an open message, up to the fence, as its content."""
    fold = tx.fold(message)
    last = message.stored_sequence
    for entry in fenced.log.entries:
        if entry.kind is not EntryKind.CHUNK or entry.message_id != message.message_id:
            continue
        if entry.revision is not None or entry.sequence <= message.stored_sequence:
            continue
        try:
            fold.apply(loads(entry.body))
        except FoldError:
            break
        last = entry.sequence
    tx.adopt(message, fold, sequence=max(last, fenced.log.last))
    return fold


def start_new_epoch_if_blind(tx: ThreadTransaction, fenced: Fenced) -> None:
    """Without a fence the next epoch keeps the old holder out: its publishes are `lost`, its step is not its own."""
    if fenced.blind and fenced.steps:
        tx.update(tx.thread, log_epoch=tx.thread.log_epoch + 1)
        tx.opening_reason = ResetReason.LOST


async def take_over(
    runtime: Runtime,
    find: Callable[[AsyncConnection], Awaitable[Thread | None]],
    choose: Callable[[AsyncConnection, Thread], Awaitable[Which]],
    decide: Callable[[ThreadTransaction, Fenced], Awaitable[Publication | None]],
) -> Publication | None:
    """Fences running steps of a thread, then lets `decide` settle them; does it again when they changed in between.

    `find` reads the thread, locking its row inside the transaction. `choose` says which steps are to be fenced: those
    that `decide` is going to settle and no others, because a fenced step cannot go on. `decide` raises `StepsChanged`
    through `check_fenced`. -> what `decide` returned; None when the thread does not exist.
    """
    for _ in range(TRIES):
        async with runtime.store.autocommit() as connection:
            thread = await find(connection)
            which = none_of_them if thread is None else await choose(connection, thread)
        if thread is None:
            return None
        fenced = await fence(runtime, version=thread.version, epoch=thread.log_epoch, which=which)
        runtime.faults.hit("fence.before_commit")

        async def work(connection: AsyncConnection, fenced: Fenced = fenced) -> Publication | None:
            thread = await find(connection)
            if thread is None:
                return None
            if thread.version != fenced.version or (fenced.steps and thread.log_epoch != fenced.epoch):
                raise StepsChanged
            return await decide(ThreadTransaction(runtime, connection, thread), fenced)

        try:
            return await runtime.store.run_write(work)
        except StepsChanged:
            continue
    return await _in_one_go(runtime, find, choose, decide)


async def _in_one_go(
    runtime: Runtime,
    find: Callable[[AsyncConnection], Awaitable[Thread | None]],
    choose: Callable[[AsyncConnection, Thread], Awaitable[Which]],
    decide: Callable[[ThreadTransaction, Fenced], Awaitable[Publication | None]],
) -> Publication | None:
    """The same while nothing can change: the log is asked inside of the transaction, which holds the rows of the thread
    and of its steps meanwhile. For a run whose steps change faster than a fence is raised."""

    async def work(connection: AsyncConnection) -> Publication | None:
        thread = await find(connection)
        if thread is None:
            return None
        which = await choose(connection, thread)
        running, positions = await _running(connection, thread.version, which, locked=True)
        fenced = await _fence(runtime, thread.version, thread.log_epoch, running, positions)
        return await decide(ThreadTransaction(runtime, connection, thread), fenced)

    return await runtime.store.run_write(work)


async def check_fenced(tx: ThreadTransaction, fenced: Fenced, *, run_id: str) -> None:
    """Raises StepsChanged unless all running steps of the run are fenced."""
    for step in await tx.live_steps():
        if step.run_id == run_id and not fenced.holds(step):
            raise StepsChanged
