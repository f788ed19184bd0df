"""Triggers by call: a trusted caller fires one now. Each fire leaves a row, whether it started a run or not."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine import receipts
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.engine.triggers import send_input
from pai.protocol.errors import IdempotencyConflict, NotFound, PaiError
from pai.protocol.ids import new_id
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.times import now_ms
from pai.store.inserts import insert_once
from pai.store.tables import FireState, TriggerFire, TriggerFireTable, table_of

_FIRE = table_of(TriggerFireTable)

logger = logging.getLogger(__name__)


class _FiredBefore(Exception):
    """Another request with the same key was first."""


async def fire_trigger(
    runtime: Runtime, caller: Caller, name: str, request: TriggerRequest, *, key: str | None = None
) -> Reply[MutationResult | None]:
    """Fires a trigger that is declared with `on_call`; None when it had nothing to send.

    It acts for the owner that the caller names, else for the one it declares, else for the caller. The thread is the
    request's, else the one that the trigger names, else a new one; when it is busy, the input waits for its turn.
    Of two requests with one key at the same moment both may ask the trigger, and one of them sends.
    Raises Forbidden, NotFound (trigger), ValidationFailed, QueueFull, IdempotencyConflict, and what the trigger raises.
    """
    caller.require_trust()
    trigger = caller.agent.triggers.get(name)
    if trigger is None or not trigger.on_call:
        raise NotFound("trigger")
    if caller.on_behalf is None and trigger.owner is not None:
        caller = Caller(replace(trigger.owner, trusted=True), caller.agent)
    content = receipts.request_hash(f"trigger {name}", request.wire())
    clock = now_ms()
    fire = TriggerFire(
        fire_id=new_id("fire"),
        agent=caller.agent.name,
        trigger=name,
        owner=caller.owner,
        attempt=1,
        request_key=key,
        request_hash=content if key is not None else None,
        created_at=clock,
    )
    if (before := await _before(runtime, fire)) is not None:
        return before

    async def close(tx: ThreadTransaction, answer: MutationResult) -> None:
        run = answer.run
        done = {"state": FireState.done, "result": answer.wire()}
        named = {} if run is None else {"thread_id": run.thread_id, "run_id": run.run_id}
        await _write(tx.connection, fire, done | named)

    try:
        answer = await send_input(runtime, caller, trigger, slot=clock, also=close, request=request)
        if answer is None:
            async with runtime.store.autocommit() as connection:
                await _write(connection, fire, {"state": FireState.skipped})
        return Reply(answer)
    except _FiredBefore:
        recorded = await _before(runtime, fire)
        if recorded is None:
            raise RuntimeError(f"The fire with the key {key} is gone.") from None
        return recorded
    except Exception as error:
        if (before := await _before(runtime, fire)) is not None:
            # Another request with the same key was first, and it may be why this one failed.
            return before
        # The key stays free, so that the call can be made again.
        detail = error.detail if isinstance(error, PaiError) else "The trigger failed."
        failed = fire.model_copy(update={"request_key": None, "request_hash": None})
        async with runtime.store.autocommit() as connection:
            await _write(connection, failed, {"state": FireState.failed, "error": detail})
        raise


async def _before(runtime: Runtime, fire: TriggerFire) -> Reply[MutationResult | None] | None:
    """What the same request was answered. Raises IdempotencyConflict."""
    if fire.request_key is None:
        return None
    query = select(_FIRE).where(
        _FIRE.c.owner == fire.owner,
        _FIRE.c.agent == fire.agent,
        _FIRE.c.trigger == fire.trigger,
        _FIRE.c.request_key == fire.request_key,
    )
    async with runtime.store.autocommit() as connection:
        row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    known = TriggerFire.of(row)
    if known.request_hash != fire.request_hash:
        raise IdempotencyConflict
    return Reply(None if known.result is None else MutationResult.read(known.result), replayed=True)


async def _write(connection: AsyncConnection, fire: TriggerFire, values: Mapping[str, Any]) -> None:
    """Raises _FiredBefore; then the transaction is undone."""
    row = fire.model_dump() | {name: str(value) if name == "state" else value for name, value in values.items()}
    if fire.request_key is None:
        await connection.execute(insert(_FIRE), row)
        return
    statement = insert_once(_FIRE, connection.dialect.name, unique=["owner", "agent", "trigger", "request_key"])
    if (await connection.execute(statement.returning(_FIRE.c.fire_id), row)).first() is None:
        raise _FiredBefore
