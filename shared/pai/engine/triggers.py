"""Triggers: schedules and fires are rows, fired by any worker; there is no scheduler process.

A slot is claimed by moving the schedule on, in the transaction that records the fire: once for the whole cluster. The
fire is closed in the transaction that creates its run. After an outage the latest missed slot fires once.

While a process has a fire of a trigger under way, it neither begins another of that trigger nor claims a slot of it:
other processes do. When all of them are busy with that trigger it is as in an outage. So a trigger that hangs takes up
nothing that others need, and a slot is claimed only by a process that begins its fire at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.contract import Agent, Trigger, TriggerContext, TriggerInput
from pai.contract.cron import latest
from pai.engine.fires import claim_fire, close_fire, renewed
from pai.engine.runtime import Caller, Runtime
from pai.engine.send import Origin, send
from pai.engine.transaction import StepLost, ThreadTransaction
from pai.protocol.errors import PaiError, Unavailable, ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.ids import new_id
from pai.protocol.requests import MutationResult, SendRequest, TriggerRequest
from pai.protocol.text import clean
from pai.store.clock import now_ms, now_once
from pai.store.inserts import insert_once
from pai.store.tables import (
    FireState,
    Schedule,
    ScheduleTable,
    TriggerFire,
    TriggerFireTable,
    table_of,
)

_SCHEDULE, _FIRE = table_of(ScheduleTable), table_of(TriggerFireTable)

FIRE_TRIES = 3
MOST_PER_ROUND = 20

logger = logging.getLogger(__name__)


class DueFire(NamedTuple):
    fire_id: str
    trigger: tuple[str, str]
    """The names of the agent and of the trigger."""


async def fire_due(runtime: Runtime) -> None:
    """Claims the slots that are due, and executes the fires that nobody does."""
    await asyncio.gather(*(execute_fire(runtime, due.fire_id) for due in await due_fires(runtime)))


async def due_fires(runtime: Runtime, *, under_way: Collection[tuple[str, str]] = ()) -> list[DueFire]:
    """Claims slots that are due. -> fires that nobody executes, for `execute_fire`; at most `MOST_PER_ROUND`.

    `under_way`: the triggers that this process executes a fire of. There are none of theirs.
    """
    scheduled = [
        (agent, trigger)
        for agent in runtime.registry
        for trigger in agent.triggers.values()
        if trigger.schedule is not None
    ]
    if not scheduled:
        return []
    names = [agent.name for agent in runtime.registry]
    busy = or_(False, *(and_(_FIRE.c.agent == agent, _FIRE.c.trigger == trigger) for agent, trigger in under_way))
    query = (
        select(_FIRE.c.fire_id, _FIRE.c.agent, _FIRE.c.trigger)
        .where(_FIRE.c.due_at <= now_once(), _FIRE.c.agent.in_(names), ~busy)
        .order_by(_FIRE.c.due_at)
        .limit(MOST_PER_ROUND)
    )
    async with runtime.store.autocommit() as connection:
        left = [DueFire(row.fire_id, (row.agent, row.trigger)) for row in await connection.execute(query)]
    free = [(agent, trigger) for agent, trigger in scheduled if (agent.name, trigger.name) not in under_way]
    return left + await _claim_slots(runtime, free, most=MOST_PER_ROUND - len(left))


async def _claim_slots(runtime: Runtime, scheduled: Sequence[tuple[Agent, Trigger]], *, most: int) -> list[DueFire]:
    async with runtime.store.autocommit() as connection:
        clock: int = (await connection.execute(select(now_ms()))).scalar_one()
        rows = [Schedule.of(row) for row in (await connection.execute(select(_SCHEDULE))).mappings()]
    known = {(row.agent, row.trigger): row for row in rows}
    now = _time(clock)
    due: list[tuple[Schedule, int, TriggerFire]] = []
    for agent, trigger in scheduled:
        following = trigger.next_after(now)
        if trigger.schedule is None or following is None or trigger.owner is None:
            continue
        next_at = _ms(following)
        row = known.get((agent.name, trigger.name))
        if row is None:
            await _begin(runtime, agent.name, trigger.name, next_at)
        elif row.next_at > next_at:
            # The declaration changed to an earlier time.
            await _move(runtime, row, next_at, fire=None)
        elif row.next_at <= clock:
            fire = TriggerFire(
                fire_id=new_id("fire"),
                agent=agent.name,
                trigger=trigger.name,
                slot=_ms(latest(trigger.schedule, _time(row.next_at), now)),
                owner=trigger.owner.owner,
                due_at=clock,
                created_at=clock,
            )
            due.append((row, next_at, fire))
    due.sort(key=lambda one: one[0].next_at)
    return [
        DueFire(fire.fire_id, (fire.agent, fire.trigger))
        for row, next_at, fire in due[:most]
        if await _move(runtime, row, next_at, fire=fire)
    ]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


async def _begin(runtime: Runtime, agent: str, trigger: str, next_at: int) -> None:
    statement = insert_once(_SCHEDULE, runtime.store.dialect, unique=["agent", "trigger"])
    async with runtime.store.autocommit() as connection:
        await connection.execute(statement, {"agent": agent, "trigger": trigger, "next_at": next_at})


async def _move(runtime: Runtime, row: Schedule, next_at: int, *, fire: TriggerFire | None) -> bool:
    """Moves the schedule on and records the fire of the slot that was passed. -> False when somebody else has."""

    async def work(connection: AsyncConnection) -> bool:
        statement = (
            update(_SCHEDULE)
            .where(
                _SCHEDULE.c.agent == row.agent, _SCHEDULE.c.trigger == row.trigger, _SCHEDULE.c.next_at == row.next_at
            )
            .values(next_at=next_at)
        )
        if (await connection.execute(statement)).rowcount != 1:
            return False
        if fire is not None:
            # Where a clock went back, the slot has fired already.
            once = insert_once(_FIRE, runtime.store.dialect, unique=["agent", "trigger", "slot"])
            await connection.execute(once, fire.model_dump())
        return True

    return await runtime.store.run_write(work)


async def execute_fire(runtime: Runtime, fire_id: str) -> FireState | None:
    """Executes a fire, unless somebody else does. -> how it ended; None when it did not, or not here.

    Raises Unavailable.
    """
    fire = await claim_fire(runtime, fire_id)
    if fire is None:
        return None
    agent = runtime.registry.get(fire.agent)
    trigger = agent.triggers.get(fire.trigger)
    if trigger is None or trigger.owner is None:
        return await _close(runtime, fire, FireState.failed, error="The trigger is not declared any more.")
    if fire.attempt > FIRE_TRIES:
        # Whoever executed it died each time.
        return await _close(runtime, fire, FireState.failed, error="The trigger was not executed to its end.")
    runtime.faults.hit("trigger.before_send")
    caller = Caller(replace(trigger.owner, trusted=True), agent)

    async def close(tx: ThreadTransaction, answer: MutationResult) -> None:
        if answer.run is None:
            return
        run = answer.run
        if not await close_fire(tx.connection, fire, FireState.done, thread_id=run.thread_id, run_id=run.run_id):
            raise StepLost(fire.fire_id)

    try:
        async with renewed(runtime, fire):
            answer = await send_input(runtime, caller, trigger, slot=fire.slot or 0, also=close)
        return FireState.done if answer is not None else await _close(runtime, fire, FireState.skipped)
    except (StepLost, Unavailable):
        # Somebody else executes this fire, or will when its lease has run out.
        return None
    except Exception as error:
        logger.exception("A trigger failed: agent=%s trigger=%s fire=%s", fire.agent, fire.trigger, fire.fire_id)
        detail = error.detail if isinstance(error, PaiError) else "The trigger failed."
        if fire.attempt >= FIRE_TRIES or isinstance(error, PaiError):
            return await _close(runtime, fire, FireState.failed, error=detail)
        return None


async def send_input(
    runtime: Runtime,
    caller: Caller,
    trigger: Trigger,
    *,
    slot: int,
    also: Callable[[ThreadTransaction, MutationResult], Awaitable[None]],
    request: TriggerRequest | None = None,
) -> MutationResult | None:
    """Asks the trigger what to send, and sends it; `also` closes the fire in the same transaction.

    -> None when there was nothing to send. Raises ValidationFailed, NotFound, QueueFull, TimeoutError, and what the
    trigger raises.
    """
    request = request or TriggerRequest()
    context = TriggerContext(
        trigger=trigger.name,
        agent=caller.agent.name,
        identity=Identity.of_owner(caller.owner),
        slot=_time(slot),
        thread_id=request.thread_id,
        client_data=None if request.client_data is None else caller.agent.read_client_data(request.client_data),
    )
    async with asyncio.timeout(runtime.settings.tool_timeout.total_seconds()):
        given = await trigger.call(context, request.input)
    if given is None:
        return None
    target = request.thread_id or given.thread_id or new_id("thread")
    origin = Origin(initiator="trigger", hidden=given.hidden, also=also)
    return (await send(runtime, caller, target, _send_request(given, request), origin=origin)).result


def _send_request(given: TriggerInput, request: TriggerRequest) -> SendRequest:
    """Raises ValidationFailed for what the trigger returned."""
    message: dict[str, Any] = {"parts": given.message_parts()}
    if given.metadata is not None:
        message["metadata"] = dict(given.metadata)
    creation = {"title": given.title, "category": given.category}
    thread: dict[str, Any] = {name: value for name, value in creation.items() if value is not None}
    if given.thread_metadata is not None:
        thread["metadata"] = dict(given.thread_metadata)
    queue = {"mode": given.queue} if request.queue is None else request.queue.wire()
    context = {} if request.client_data is None else {"clientData": request.client_data}
    try:
        return SendRequest.read(clean({"message": message, "thread": thread, "queue": queue, **context}))
    except ValidationError as error:
        raise ValidationFailed.of(error) from None


async def _close(runtime: Runtime, fire: TriggerFire, state: FireState, *, error: str | None = None) -> FireState:
    async with runtime.store.autocommit() as connection:
        await close_fire(connection, fire, state, error=error)
    return state
