"""What one identity may have at once, all its threads together. Trusted callers act for many and are not limited."""

import hashlib

from sqlalchemy import bindparam, case, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.runtime import Caller
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import RateLimited
from pai.protocol.state import ThreadStatus
from pai.store.tables import ThreadTable, table_of

_THREAD = table_of(ThreadTable)
_BUSY = select(
    func.coalesce(func.sum(case((_THREAD.c.status == ThreadStatus.running.value, 1), else_=0)), 0).label("running"),
    func.coalesce(func.sum(_THREAD.c.queued), 0).label("queued"),
).where(_THREAD.c.owner == bindparam("owner"), text("status <> 'idle'"))
_LOCK = text("SELECT pg_advisory_xact_lock(:number)")

RETRY_AFTER = 1.0
"""Seconds; nobody knows when something ends."""


async def lock_owner(connection: AsyncConnection, owner: str) -> None:
    """Until the transaction ends, no other one counts what this owner has.

    Taken after the thread's row and before rows of files, so that no two transactions wait for each other. On SQLite a
    writing transaction excludes all others anyway.
    """
    if connection.dialect.name == "postgresql":
        digest = hashlib.sha256(f"pai owner {owner}".encode()).digest()
        await connection.execute(_LOCK, {"number": int.from_bytes(digest[:8], signed=True)})


async def check_turn(tx: ThreadTransaction, caller: Caller, *, may_queue: bool) -> None:
    """Before an input is accepted: whether its thread may run, or its input wait, beside all others of the owner.

    Raises RateLimited.
    """
    settings, idle = tx.runtime.settings, tx.thread.status == ThreadStatus.idle
    limit = settings.max_running_threads if idle else settings.max_queued_inputs if may_queue else None
    if limit is None or caller.identity.trusted:
        return
    await lock_owner(tx.connection, caller.owner)
    busy = (await tx.connection.execute(_BUSY, {"owner": caller.owner})).one()
    if (busy.running if idle else busy.queued) >= limit:
        what = "threads that run at once" if idle else "inputs that wait"
        raise RateLimited(f"The limit is {limit} {what}.", limit=limit, retry_after=RETRY_AFTER)
