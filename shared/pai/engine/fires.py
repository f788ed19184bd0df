"""The rows of fires: claimed like steps, closed once, and dropped when they are old."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sqlalchemy import BigInteger, bindparam, cast, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.runtime import Runtime
from pai.protocol.errors import Unavailable
from pai.store.clock import now_ms, now_once
from pai.store.tables import FireState, TriggerFire, TriggerFireTable, table_of

_FIRE = table_of(TriggerFireTable)

MOST_DROPPED = 500

_HELD = (
    _FIRE.c.fire_id == bindparam("of_fire"),
    _FIRE.c.attempt == bindparam("of_attempt"),
    _FIRE.c.state == FireState.running.value,
)
_CLAIM = (
    update(_FIRE)
    .where(
        _FIRE.c.fire_id == bindparam("of_fire"),
        _FIRE.c.due_at <= now_ms(),
        or_(_FIRE.c.state == FireState.pending.value, _FIRE.c.state == FireState.running.value),
    )
    .values(
        state=FireState.running.value,
        attempt=_FIRE.c.attempt + 1,
        due_at=now_ms() + cast(bindparam("lease_ms"), BigInteger),
    )
    .returning(*_FIRE.c)
)
_RENEW = update(_FIRE).where(*_HELD).values(due_at=now_ms() + cast(bindparam("lease_ms"), BigInteger))
_CLOSE = (
    update(_FIRE)
    .where(*_HELD)
    .values(
        state=bindparam("new_state"),
        due_at=None,
        thread_id=bindparam("new_thread"),
        run_id=bindparam("new_run"),
        error=bindparam("new_error"),
    )
)


async def claim_fire(runtime: Runtime, fire_id: str) -> TriggerFire | None:
    """None when somebody else executes it, or has."""
    parameters = {"of_fire": fire_id, "lease_ms": _lease_ms(runtime)}
    async with runtime.store.autocommit() as connection:
        row = (await connection.execute(_CLAIM, parameters)).mappings().first()
    return None if row is None else TriggerFire.of(row)


@contextlib.asynccontextmanager
async def renewed(runtime: Runtime, fire: TriggerFire) -> AsyncIterator[None]:
    """Keeps a claim while the trigger is asked, which may take longer than a lease."""
    parameters = {"of_fire": fire.fire_id, "of_attempt": fire.attempt, "lease_ms": _lease_ms(runtime)}

    async def renew() -> None:
        while True:
            await asyncio.sleep(runtime.lease_ms / 1000)
            with contextlib.suppress(Unavailable):
                async with runtime.store.autocommit() as connection:
                    await connection.execute(_RENEW, parameters)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def close_fire(
    connection: AsyncConnection,
    fire: TriggerFire,
    state: FireState,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    error: str | None = None,
) -> bool:
    """-> whether it was still this claim's."""
    values = {
        "of_fire": fire.fire_id,
        "of_attempt": fire.attempt,
        "new_state": state.value,
        "new_thread": thread_id,
        "new_run": run_id,
        "new_error": error,
    }
    return (await connection.execute(_CLOSE, values)).rowcount == 1


async def drop_old_fires(runtime: Runtime) -> None:
    """Drops some of the fires that were closed long ago; their keys may be used again. Raises Unavailable."""
    age_ms = round(runtime.settings.trigger_fire_age.total_seconds() * 1000)
    old = (select(_FIRE.c.fire_id).where(_FIRE.c.due_at.is_(None), _FIRE.c.created_at < now_once() - age_ms)).limit(
        MOST_DROPPED
    )
    async with runtime.store.autocommit() as connection:
        # Looked for first: a transaction that writes keeps others waiting on SQLite.
        fires = list((await connection.execute(old)).scalars())
        if fires:
            await connection.execute(delete(_FIRE).where(_FIRE.c.fire_id.in_(fires)))


def _lease_ms(runtime: Runtime) -> int:
    return 3 * runtime.lease_ms
