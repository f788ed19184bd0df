"""Delivers flags: each becomes a transaction of the thread that it is for, in which it is also removed.

The process that wrote a flag delivers it at once; what that process lost, the sweep finds.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.advance import advance
from pai.engine.deletion import delete_version
from pai.engine.flags import is_there, remove_flag, run_to_stop
from pai.engine.locked import lock_by_version
from pai.engine.publication import Publication
from pai.engine.runtime import Runtime
from pai.engine.stop import stop_all
from pai.engine.takeover import Fenced, Which, none_of_them, take_over
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import Unavailable
from pai.store.clock import now_ms, now_once
from pai.store.tables import (
    EffectKind,
    EffectState,
    Flag,
    FlagKind,
    FlagTable,
    Journal,
    JournalTable,
    StepState,
    Thread,
    table_of,
)

_FLAG, _JOURNAL = table_of(FlagTable), table_of(JournalTable)

MOST_AT_ONCE = 50
AGAIN_MS: Sequence[int] = (2_000, 5_000, 15_000, 60_000, 300_000)
"""The growing distance between looks at a flag that cannot be taken yet."""
UNBORN_MS = 60_000
"""How long a flag waits for a child whose creation may be under way."""
PARENT_STOPPED = "the thread that started it was stopped"

logger = logging.getLogger(__name__)


async def deliver(runtime: Runtime, flag_ids: Sequence[str]) -> None:
    """Delivers what this process wrote, as far as its registry goes; problems are left to the sweep."""
    try:
        await _deliver_all(runtime, await _read(runtime, flag_ids))
    except Unavailable as error:
        logger.warning("Flags are left to the sweep: %s", error)


async def deliver_due(runtime: Runtime) -> None:
    """One round of the sweep. Raises Unavailable."""
    names = [agent.name for agent in runtime.registry]
    due = (
        select(_FLAG)
        .where(_FLAG.c.due_at <= now_once(), _FLAG.c.agent.in_(names))
        .order_by(_FLAG.c.due_at)
        .limit(MOST_AT_ONCE)
    )
    async with runtime.store.autocommit() as connection:
        flags = [Flag.of(row) for row in (await connection.execute(due)).mappings()]
    await _deliver_all(runtime, flags)


async def _read(runtime: Runtime, flag_ids: Sequence[str]) -> list[Flag]:
    async with runtime.store.autocommit() as connection:
        rows = (await connection.execute(select(_FLAG).where(_FLAG.c.flag_id.in_(flag_ids)))).mappings()
        return [flag for flag in map(Flag.of, rows) if flag.agent in runtime.registry]


async def _deliver_all(runtime: Runtime, flags: Sequence[Flag]) -> None:
    for flag in flags:
        runtime.faults.hit("flag.before_delivery")
        try:
            await _deliver(runtime, flag)
        except Unavailable:
            raise
        except Exception:
            logger.exception("A flag for %s could not be delivered; it is tried again.", flag.version)
            await _later(runtime, flag)


async def _deliver(runtime: Runtime, flag: Flag) -> None:
    match FlagKind(flag.kind):
        case FlagKind.ended:
            taken = await _resume(runtime, flag)
        case FlagKind.delete:
            taken = await delete_version(runtime, flag.version)
        case FlagKind.stop | FlagKind.orphan:
            taken = await _stop(runtime, flag)
    if not taken:
        await _later(runtime, flag, unborn=flag.kind != FlagKind.ended)


async def _later(runtime: Runtime, flag: Flag, *, unborn: bool = False) -> None:
    """Looks again later, or gives up on a child that was never created."""
    mine = _FLAG.c.flag_id == flag.flag_id
    async with runtime.store.autocommit() as connection:
        if unborn:
            await connection.execute(delete(_FLAG).where(mine, _FLAG.c.created_at < now_ms() - UNBORN_MS))
        due_at = now_ms() + AGAIN_MS[min(flag.tries, len(AGAIN_MS) - 1)]
        await connection.execute(update(_FLAG).where(mine).values(tries=_FLAG.c.tries + 1, due_at=due_at))


async def _resume(runtime: Runtime, flag: Flag) -> bool:
    """Enters the call again that waits for this child. -> False when it runs, and may come to wait for it."""
    waits = select(_JOURNAL).where(
        _JOURNAL.c.step_id == flag.step_id,
        _JOURNAL.c.kind == EffectKind.follow.value,
        _JOURNAL.c.name == flag.child_version,
        _JOURNAL.c.state == EffectState.pending.value,
    )

    async def work(connection: AsyncConnection) -> tuple[bool, Publication | None]:
        thread = await lock_by_version(connection, version=flag.version)
        tx = None if thread is None else ThreadTransaction(runtime, connection, thread)
        steps = [] if tx is None else await tx.live_steps()
        step = next((step for step in steps if step.step_id == flag.step_id), None)
        if tx is None or step is None:
            # The call is settled, or its thread is gone.
            await remove_flag(connection, flag.flag_id)
            return True, None
        row = (await connection.execute(waits)).mappings().first() if step.state == StepState.suspended else None
        if row is None:
            return False, None
        if not await remove_flag(connection, flag.flag_id):
            return True, None
        journal = Journal.of(row)
        tx.update(journal, state=EffectState.resumed, value={"payload": flag.value})
        tx.put_to_work(step)
        await advance(tx)
        return True, await tx.flush()

    taken, publication = await runtime.store.run_write(work)
    if publication is not None:
        await runtime.announce(publication)
    return taken


async def _stop(runtime: Runtime, flag: Flag) -> bool:
    """Stops the run of a child that the flag is for, with all that is queued. -> False when there is no such thread
    (yet)."""
    found = False
    run_id, orphan = run_to_stop(flag), flag.kind == FlagKind.orphan

    def goes_on(thread: Thread) -> bool:
        if run_id is None:
            return thread.current_run_id is not None and thread.parent_step_id is not None
        return thread.current_run_id == run_id

    async def find(connection: AsyncConnection) -> Thread | None:
        return await lock_by_version(connection, version=flag.version)

    async def choose(connection: AsyncConnection, thread: Thread) -> Which:
        """None when another process was faster: a fence would only keep a run from going on."""
        if not goes_on(thread) or not await is_there(connection, flag.flag_id):
            return none_of_them
        current = thread.current_run_id
        return lambda step: step.run_id == current

    async def decide(tx: ThreadTransaction, fenced: Fenced) -> Publication | None:
        nonlocal found
        found = True
        if not await remove_flag(tx.connection, flag.flag_id):
            return None
        if goes_on(tx.thread):
            await stop_all(tx, fenced, reason=PARENT_STOPPED)
        elif not orphan:
            return None
        if orphan:
            gone = ("parent_version", "parent_thread_id", "parent_agent", "parent_run_id", "parent_step_id")
            tx.update(tx.thread, **dict.fromkeys(gone))
        return await tx.flush()

    publication = await take_over(runtime, find, choose, decide)
    if publication is not None:
        await runtime.announce(publication)
    return found
