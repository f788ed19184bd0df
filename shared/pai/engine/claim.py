"""Claims and leases: single statements by which a worker takes, keeps and loses steps. The database's clock counts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, and_, bindparam, case, cast, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.locked import Locked
from pai.engine.runtime import Runtime
from pai.engine.transaction import DEADLINE_GRACE_MS, SEEN, StepLost
from pai.store.clock import now_ms, now_once
from pai.store.statements import Statement
from pai.store.store import fetch_all
from pai.store.tables import (
    LIVE_STEPS,
    Journal,
    JournalTable,
    Message,
    MessageTable,
    Run,
    RunTable,
    Step,
    StepKind,
    StepState,
    StepTable,
    Thread,
    ThreadTable,
    table_of,
)

_THREAD, _RUN = table_of(ThreadTable), table_of(RunTable)
_MESSAGE, _STEP, _JOURNAL = table_of(MessageTable), table_of(StepTable), table_of(JournalTable)
_OWN, _OTHER = _STEP.alias("own"), _STEP.alias("other")
_LIVE = [state.value for state in LIVE_STEPS]

CLAIM = (
    update(_STEP)
    .where(
        _STEP.c.step_id == bindparam("of_step"),
        _STEP.c.state == StepState.pending.value,
        _STEP.c.available_at <= now_ms(),
        func.replace(bindparam("agents"), "," + _STEP.c.agent + ",", "") != bindparam("agents"),
    )
    .values(
        state=StepState.running.value,
        attempt=_STEP.c.attempt + 1,
        lease_owner=bindparam("worker"),
        lease_expires_at=now_ms() + cast(bindparam("lease_ms"), BigInteger),
        first_started_at=func.coalesce(_STEP.c.first_started_at, now_ms()),
        deadline_at=now_ms() + _STEP.c.timeout_ms + DEADLINE_GRACE_MS,
        dispatch_at=None,
    )
    .returning(*_STEP.c)
)
"""Only a pending step that is due can be claimed: what was running is put back to pending by a take-over first.

Steps of agents that this process does not know are left to others."""

STRANGER_MS: Sequence[int] = (250, 500, 1_000, 2_000, 5_000)
"""The growing distance between dispatches of a step whose messages reach workers that do not know its agent."""

_BRING_AGAIN = (
    update(_STEP)
    .where(
        _STEP.c.step_id == bindparam("of_step"),
        _STEP.c.state == StepState.pending.value,
        _STEP.c.agent.not_in(bindparam("agents", expanding=True)),
    )
    .values(
        dispatch_at=now_ms()
        + cast(
            case(
                *((_STEP.c.dispatches == count, milliseconds) for count, milliseconds in enumerate(STRANGER_MS)),
                else_=STRANGER_MS[-1],
            ),
            BigInteger,
        )
    )
)
"""The message of a step came to the wrong worker and is used up. Whoever knows the agent sends the next, and soon."""

_TAKEN = (
    _STEP.c.step_id == bindparam("of_step"),
    _STEP.c.lease_owner == bindparam("worker"),
    _STEP.c.state == StepState.running.value,
)
_THREAD_TAKEN = select(_THREAD).join(_STEP, _STEP.c.version == _THREAD.c.version).where(*_TAKEN)
_RUN_TAKEN = select(_RUN).join(_STEP, _STEP.c.run_id == _RUN.c.run_id).where(*_TAKEN)
_SEEN = _MESSAGE.c.visibility.in_(SEEN)
_ALONE = ~exists().where(
    _OTHER.c.version == _STEP.c.version, _OTHER.c.step_id != _STEP.c.step_id, _OTHER.c.state.in_(_LIVE)
)
_MESSAGES_TAKEN = (
    select(_MESSAGE)
    .join(_STEP, _STEP.c.version == _MESSAGE.c.version)
    .where(
        *_TAKEN,
        case(
            (
                _STEP.c.kind == StepKind.tool.value,
                or_(_MESSAGE.c.message_id == _STEP.c.message_id, and_(_SEEN, _ALONE)),
            ),
            else_=_SEEN,
        ),
    )
    .order_by(_MESSAGE.c.position)
)
"""What a claimed step works on, for the same exchange: a tool step needs its own message, others what a model sees.

After the last of the calls comes the model, on this worker: it needs what a model sees, too."""

_STEPS_TAKEN = (
    select(_STEP)
    .where(
        _STEP.c.version == select(_OWN.c.version).where(_OWN.c.step_id == bindparam("of_step")).scalar_subquery(),
        _STEP.c.state.in_(_LIVE),
    )
    .order_by(_STEP.c.number)
)
_JOURNAL_TAKEN = (
    select(_JOURNAL)
    .join(_STEP, _STEP.c.step_id == _JOURNAL.c.step_id)
    .where(*_TAKEN, _STEP.c.attempt > 1)
    .order_by(_JOURNAL.c.ordinal)
)

_HISTORY = select(_MESSAGE).where(_MESSAGE.c.version == bindparam("version"), _SEEN).order_by(_MESSAGE.c.position)
_POSTPONE = (
    update(_STEP)
    .where(_STEP.c.step_id == bindparam("of_step"), _STEP.c.attempt == bindparam("of_attempt"))
    .where(_STEP.c.state == StepState.running.value)
    .values(
        state=StepState.pending.value,
        lease_owner=None,
        lease_expires_at=None,
        available_at=now_ms(),
        dispatch_at=now_ms() + cast(bindparam("delay_ms"), BigInteger),
    )
)


@dataclass(slots=True)
class Claim:
    """A step that this worker holds, with what it needs: thread, run, and the messages it works on.

    `message`: the one that the step works on; None for hooks. `history`: every message the model may see, in order;
    None until it is read. `journal`: what earlier entries of a tool call did. `steps`: the live ones of the thread. All
    is as of `thread.revision`. `published`: done when the transaction that made the step was; what the step streams
    comes after.
    """

    step: Step
    thread: Thread
    run: Run
    message: Message | None = None
    history: list[Message] | None = None
    journal: list[Journal] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    published: asyncio.Future[None] | None = None

    @property
    def basis(self) -> Locked | None:
        """What the step's commit may start from without reading it again: while nobody else works on the thread."""
        if len(self.steps) != 1 or self.steps[0].step_id != self.step.step_id:
            return None
        return Locked(self.thread, [self.step], [self.run], self.message)

    @property
    def own_message(self) -> Message:
        """Raises StepLost when it is gone."""
        if self.message is None:
            raise StepLost(self.step.step_id)
        return self.message

    @property
    def seen(self) -> Sequence[Message]:
        """The history, as far as it was read."""
        return self.history or ()

    def take_history(self, messages: list[Message]) -> None:
        """Sets the history, in which the step's own message is found too."""
        self.history = messages
        own = self.step.message_id
        if own is not None:
            self.message = next((message for message in messages if message.message_id == own), None)


def _agents(runtime: Runtime) -> list[str]:
    return [agent.name for agent in runtime.registry]


async def claim(runtime: Runtime, step_id: str, *, worker: str) -> Claim | None:
    """Takes a pending step; None when there is nothing to claim (done, taken, not due, gone, of an unknown agent)."""
    names = {"of_step": step_id, "worker": worker}
    parameters = {
        **names,
        "lease_ms": runtime.lease_ms,
        # One text instead of a list, whose statement would be put together anew for every claim.
        "agents": f",{',,'.join(_agents(runtime))},",
    }
    # The thread first: what is read after its revision is at least as new, and the revision tells.
    taken: list[Statement] = [
        (CLAIM, parameters),
        (_THREAD_TAKEN, names),
        (_RUN_TAKEN, names),
        (_MESSAGES_TAKEN, names),
        (_STEPS_TAKEN, names),
        (_JOURNAL_TAKEN, names),
    ]
    async with runtime.store.autocommit() as connection:
        steps, threads, runs, messages, live, journal = await fetch_all(connection, taken)
        if not steps:
            await connection.execute(_BRING_AGAIN, {"of_step": step_id, "agents": _agents(runtime)})
    # On SQLite each statement is a transaction of its own, and the step may be settled after the first.
    if not steps or not threads or not runs:
        return None
    claimed = Claim(
        Step.of(steps[0]),
        Thread.of(threads[0]),
        Run.of(runs[0]),
        journal=[Journal.of(row) for row in journal],
        steps=[Step.of(row) for row in live],
    )
    read = [Message.of(row) for row in messages]
    if claimed.step.kind != StepKind.tool:
        claimed.take_history(read)
        return claimed
    claimed.message = next((message for message in read if message.message_id == claimed.step.message_id), None)
    if len(live) == 1:
        # A step that ended between the two statements raised the revision, and then nobody believes this.
        claimed.history = [message for message in read if message.visibility in SEEN]
    return claimed


async def read_history(runtime: Runtime, claim: Claim) -> None:
    """Reads what the model may see, and the step's own message, unless that came with the claim."""
    if claim.history is not None:
        return
    async with runtime.store.autocommit() as connection:
        [rows] = await fetch_all(connection, [(_HISTORY, {"version": claim.step.version})])
    claim.take_history([Message.of(row) for row in rows])


async def postpone(runtime: Runtime, step: Step, *, delay_ms: int) -> None:
    """Gives a claimed step back that was not begun."""
    parameters = {"of_step": step.step_id, "of_attempt": step.attempt, "delay_ms": delay_ms}
    async with runtime.store.autocommit() as connection:
        await connection.execute(_POSTPONE, parameters)


RENEW = (
    update(_STEP)
    .where(
        _STEP.c.step_id.in_(bindparam("held", expanding=True)),
        _STEP.c.lease_owner == bindparam("worker"),
        _STEP.c.state == StepState.running.value,
        or_(_STEP.c.deadline_at.is_(None), _STEP.c.deadline_at > now_ms()),
    )
    .values(lease_expires_at=now_ms() + cast(bindparam("lease_ms"), BigInteger))
    .returning(_STEP.c.step_id, _STEP.c.attempt)
)
"""Renews the steps that a worker process runs (`held`, their ids); what is not returned is not
its own any more, or past its deadline."""

_EXPIRED = (
    select(_STEP.c.step_id, _STEP.c.version)
    .where(
        _STEP.c.state == StepState.running.value,
        _STEP.c.lease_expires_at < now_once(),
        _STEP.c.agent.in_(bindparam("agents", expanding=True)),
    )
    .order_by(_STEP.c.lease_expires_at)
    .limit(100)
)
_FORGOTTEN = (
    select(_STEP.c.step_id)
    .where(
        _STEP.c.state == StepState.pending.value,
        _STEP.c.dispatch_at <= now_once(),
        _STEP.c.agent.in_(bindparam("agents", expanding=True)),
    )
    .order_by(_STEP.c.dispatch_at)
    .limit(100)
    .with_for_update(skip_locked=True)
)
REDISPATCH_MS: Sequence[int] = (5_000, 15_000, 60_000, 300_000)
"""The growing distance between dispatches of a step that nobody claims."""


async def expired(runtime: Runtime) -> list[tuple[str, str]]:
    """Steps whose lease ran out, as (step id, thread version)."""
    async with runtime.store.autocommit() as connection:
        return [(row.step_id, row.version) for row in await connection.execute(_EXPIRED, {"agents": _agents(runtime)})]


_OVERDUE = (
    select(_STEP.c.step_id, _STEP.c.version)
    .where(
        _STEP.c.state == StepState.suspended.value,
        _STEP.c.dispatch_at <= now_once(),
        _STEP.c.agent.in_(bindparam("agents", expanding=True)),
    )
    .order_by(_STEP.c.dispatch_at)
    .limit(100)
)


async def overdue(runtime: Runtime) -> list[tuple[str, str]]:
    """Suspended steps whose time is over, as (step id, thread version)."""
    async with runtime.store.autocommit() as connection:
        return [(row.step_id, row.version) for row in await connection.execute(_OVERDUE, {"agents": _agents(runtime)})]


async def take_forgotten(runtime: Runtime) -> list[tuple[str, str]]:
    """Pending steps that are due to be dispatched (again), as (step id, queue): each once in the whole cluster."""

    async def work(connection: AsyncConnection) -> list[tuple[str, str]]:
        ids = [row.step_id for row in await connection.execute(_FORGOTTEN, {"agents": _agents(runtime)})]
        if not ids:
            return []
        later = case(
            *((_STEP.c.dispatches == count, milliseconds) for count, milliseconds in enumerate(REDISPATCH_MS)),
            else_=REDISPATCH_MS[-1],
        )
        statement = (
            update(_STEP)
            .where(
                _STEP.c.step_id.in_(ids),
                _STEP.c.state == StepState.pending.value,
                _STEP.c.dispatch_at <= now_ms(),
            )
            .values(dispatches=_STEP.c.dispatches + 1, dispatch_at=now_ms() + cast(later, BigInteger))
            .returning(_STEP.c.step_id, _STEP.c.queue)
        )
        return [(row.step_id, row.queue) for row in await connection.execute(statement)]

    return await runtime.store.run_write(work)
