"""How a send begins: the thread is made if it is not there, locked, and asked whether it knows the request, all in one
exchange. Of two creators the second waits for the first."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.locked import LOCK_BY_NAME, thread_of, version_by_name
from pai.engine.receipts import Request
from pai.engine.runtime import Caller
from pai.protocol.errors import MessageConflict, NotFound
from pai.protocol.ids import new_id
from pai.protocol.times import now_ms
from pai.store.database import POSTGRESQL, SQLITE
from pai.store.inserts import insert_once
from pai.store.statements import Statement
from pai.store.store import fetch_all
from pai.store.tables import MessageTable, QueueItemTable, Receipt, Thread, ThreadTable, table_of

_THREAD, _MESSAGE, _QUEUE = table_of(ThreadTable), table_of(MessageTable), table_of(QueueItemTable)


_INSERT = {
    dialect: insert_once(_THREAD, dialect, unique=["owner", "agent", "thread_id"]).returning(_THREAD.c.version)
    for dialect in (POSTGRESQL, SQLITE)
}
_USED = select(_MESSAGE.c.message_id).where(
    _MESSAGE.c.version == version_by_name(), _MESSAGE.c.message_id == bindparam("message_id")
)
_WAITING = select(_QUEUE.c.messages).where(_QUEUE.c.version == bindparam("version"))


@dataclass(slots=True)
class Opened:
    """`recorded`: the result of the same request, which came before."""

    thread: Thread
    created: bool
    recorded: dict[str, Any] | None = None


async def open_thread(
    connection: AsyncConnection,
    caller: Caller,
    thread_id: str,
    request: Request,
    *,
    message_id: str | None,
    version: str | None,
) -> Opened:
    """`message_id`: the one that the request gives. `version`: the one that a new thread gets.

    Raises NotFound for a thread that is hidden from the caller, IdempotencyConflict, and MessageConflict for an id that
    another message of the thread has.
    """
    now = now_ms()
    name: dict[str, Any] = caller.names(thread_id)
    new = Thread(version=version or new_id("th"), **name, created_at=now, updated_at=now, listed_at=now)
    statements: list[Statement] = [
        (_INSERT[connection.dialect.name], new.__dict__.copy()),
        (LOCK_BY_NAME, name),
        *request.lookup(name),
    ]
    if message_id is not None:
        statements.append((_USED, {**name, "message_id": message_id}))
    inserted, locked, *found = await fetch_all(connection, statements)
    if not inserted and not locked:
        # It was deleted while this waited for its lock: then it is made anew.
        inserted, locked, *found = await fetch_all(connection, statements)
    if inserted:
        return Opened(new, created=True)
    thread = thread_of(locked)
    if thread is None:
        raise NotFound("thread", "The thread was deleted at this very moment. Send again.")
    if not caller.sees(thread):
        raise NotFound("thread")
    used = found.pop() if message_id is not None else []
    recorded = request.recorded([Receipt.of(row) for rows in found for row in rows])
    # An id that the server or the model made cannot be sent either.
    if recorded is None and message_id is not None and (used or message_id in await _queued_ids(connection, thread)):
        raise MessageConflict
    return Opened(thread, created=False, recorded=recorded)


async def _queued_ids(connection: AsyncConnection, thread: Thread) -> set[str]:
    if not thread.queued:
        return set()
    [rows] = await fetch_all(connection, [(_WAITING, {"version": thread.version})])
    return {message["id"] for row in rows for message in row["messages"]}
