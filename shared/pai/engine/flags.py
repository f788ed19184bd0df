"""Flags: rows in which one thread's transaction says something to another thread, whose own transaction takes them.

All times are the database's, because whoever writes a flag and whoever sweeps it may be different hosts.
"""

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.protocol.ids import new_id
from pai.store.clock import now_ms
from pai.store.tables import Flag, FlagKind, FlagTable, table_of

_FLAG = table_of(FlagTable)

FIRST_LOOK_MS = 2_000
"""The process that wrote a flag delivers it; this is when the sweep thinks that it did not."""

INSERT_FLAG = _FLAG.insert().values(due_at=now_ms() + FIRST_LOOK_MS, created_at=now_ms())
"""For `execute_all`, with a row as the parameters: it gets its times here."""


def flag(kind: FlagKind, *, version: str, agent: str, **fields: Any) -> Flag:
    return Flag(flag_id=new_id("flag"), version=version, agent=agent, kind=kind, **fields)


def stop_flag(kind: FlagKind, *, version: str, agent: str, run_id: str | None) -> Flag:
    """`stop` or `orphan`, for that run of a child and no later one; None: for the run with which it begins."""
    return flag(kind, version=version, agent=agent, value=None if run_id is None else {"runId": run_id})


def run_to_stop(flag: Flag) -> str | None:
    run_id: str | None = None if flag.value is None else flag.value["runId"]
    return run_id


async def is_there(connection: AsyncConnection, flag_id: str) -> bool:
    return (await connection.execute(select(_FLAG.c.flag_id).where(_FLAG.c.flag_id == flag_id))).first() is not None


async def remove_flag(connection: AsyncConnection, flag_id: str) -> bool:
    """-> whether it was there."""
    return (await connection.execute(delete(_FLAG).where(_FLAG.c.flag_id == flag_id))).rowcount == 1
