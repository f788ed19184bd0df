"""The frame of every mutation: lock the thread, answer from the receipt or decide, commit, then tell the world."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.advance import advance
from pai.engine.locked import (
    ASKED_BY_NAME,
    LOCK_BY_NAME,
    MESSAGE_BY_NAME,
    RUNS_BY_NAME,
    STEPS_BY_NAME,
    Locked,
    has_moved,
    lock_to_decide,
    lock_unchanged,
    locked_of,
    thread_of,
)
from pai.engine.publication import Publication
from pai.engine.receipts import KEY, Named, Request, find_receipt
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import NotFound
from pai.protocol.ids import is_id
from pai.protocol.wire import WireModel
from pai.store.database import POSTGRESQL
from pai.store.statements import Statement
from pai.store.store import fetch_all
from pai.store.tables import Receipt, Thread

R = TypeVar("R", bound=WireModel)
T = TypeVar("T")


async def lock_for(connection: AsyncConnection, caller: Caller, thread_id: str) -> Thread | None:
    """The caller's thread, locked; None when there is none that this caller may see."""
    if not is_id(thread_id):
        return None
    [rows] = await fetch_all(connection, [(LOCK_BY_NAME, caller.names(thread_id))])
    thread = thread_of(rows)
    return thread if caller.sees(thread) else None


async def mutate(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    *,
    result: type[R],
    key: str | None,
    request_hash: str,
    decide: Callable[[ThreadTransaction], Awaitable[R]],
    named: Named | None = None,
    run_id: str = "",
    message_id: str | None = None,
    tool_call_id: str | None = None,
) -> Reply[R]:
    """A mutation of an existing thread. `decide` changes rows and plans what runs next.

    `named`: another id than the key that makes it idempotent. `run_id`, `message_id` and `tool_call_id` (a call of that
    message): what `decide` will read.
    Raises NotFound, IdempotencyConflict, and whatever `decide` raises; then nothing has changed.
    """
    request = Request(key, request_hash, named or Named())

    async def work(connection: AsyncConnection) -> tuple[Reply[R], Publication | None]:
        name = caller.names(thread_id)
        locked, receipts = await lock_named(
            connection, name, request=request, run_id=run_id, message_id=message_id, tool_call_id=tool_call_id
        )
        if locked is None or not caller.sees(locked.thread):
            raise NotFound("thread")
        recorded = request.recorded(receipts)
        if recorded is not None:
            return Reply(result.read(recorded), replayed=True), None
        tx = ThreadTransaction(runtime, connection, locked.thread)
        tx.take(locked)
        answer = await decide(tx)
        tx.record(request, answer.wire())
        return Reply(answer), await tx.flush()

    reply, publication = await runtime.store.run_write(work)
    if publication is not None:
        await runtime.tell(publication)
    return reply


async def lock_named(
    connection: AsyncConnection,
    name: dict[str, str],
    *,
    request: Request,
    run_id: str = "",
    message_id: str | None = None,
    tool_call_id: str | None = None,
) -> tuple[Locked | None, list[Receipt]]:
    """Locks a thread and reads what a decision on it starts from, with the receipts of the request."""
    if not is_id(name["thread_id"]):
        return None, []
    statements: list[Statement] = [
        (LOCK_BY_NAME, name),
        (STEPS_BY_NAME, name),
        (RUNS_BY_NAME, {**name, "run_id": run_id}),
    ]
    if message_id is not None:
        statements.append((MESSAGE_BY_NAME, {**name, "message_id": message_id}))
        if tool_call_id is not None:
            statements.append((ASKED_BY_NAME, {**name, "message_id": message_id, "tool_call_id": tool_call_id}))
    read = len(statements)
    answers = await fetch_all(connection, [*statements, *request.lookup(name)])
    locked = locked_of(*answers[:read])
    return locked, [] if locked is None else [Receipt.of(row) for rows in answers[read:] for row in rows]


async def recorded_result(
    connection: AsyncConnection, thread: Thread, *, key: str | None, request_hash: str
) -> dict[str, Any] | None:
    """The recorded result of the request with this key. Raises IdempotencyConflict when it was another request."""
    if key is None:
        return None
    receipt = await find_receipt(connection, version=thread.version, kind=KEY, request_id=key)
    return Request(key, request_hash).recorded([] if receipt is None else [receipt])


async def transact(
    runtime: Runtime,
    version: str,
    decide: Callable[[ThreadTransaction], Awaitable[T]],
    *,
    worker: str | None = None,
    run_id: str = "",
    message_id: str | None = None,
    basis: Locked | None = None,
) -> tuple[T, ThreadTransaction, Publication] | None:
    """A transaction on an incarnation, planned at its end; None when it is gone. The caller announces it.

    `run_id` and `message_id`: what `decide` is going to read, so that it comes with the lock. `basis`: what was read
    before; while it still holds, the whole transaction is one exchange.
    """

    async def work(
        connection: AsyncConnection, basis: Locked | None = None
    ) -> tuple[T, ThreadTransaction, Publication] | None:
        if basis is not None:
            await lock_unchanged(connection, basis.thread)
            locked: Locked | None = basis.copied()
        else:
            locked = await lock_to_decide(connection, version=version, run_id=run_id, message_id=message_id)
        if locked is None:
            return None
        tx = ThreadTransaction(runtime, connection, locked.thread, worker=worker)
        tx.take(locked)
        answer = await decide(tx)
        await advance(tx)
        return answer, tx, await tx.flush()

    if basis is not None and runtime.store.dialect == POSTGRESQL:
        try:
            return await runtime.store.run_write(partial(work, basis=basis))
        except DataError as error:
            if not has_moved(error):
                raise
    return await runtime.store.run_write(work)
