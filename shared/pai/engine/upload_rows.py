"""The row of an upload: it comes first, so that whatever happens something says which bytes may lie around."""

import logging
from typing import Any

from sqlalchemy import BigInteger, bindparam, cast, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.files import stored_bytes
from pai.engine.locked import NAMED
from pai.engine.runtime import Runtime
from pai.protocol.errors import NotFound, RateLimited, Unavailable
from pai.store.clock import now_ms
from pai.store.inserts import insert_once
from pai.store.tables import File, FileState, FileTable, FileUseTable, MessageTable, ThreadTable, table_of

_FILE, _USE = table_of(FileTable), table_of(FileUseTable)
_THREAD, _MESSAGE = table_of(ThreadTable), table_of(MessageTable)

GRACE_MS = 60_000
"""How much later than an upload's own process the sweep gives it up."""

_FULL_FOR_SECONDS = 60.0

_BY_KEY = (
    select(_FILE)
    .where(
        _FILE.c.owner == bindparam("owner"),
        _FILE.c.agent == bindparam("agent"),
        _FILE.c.request_key == bindparam("key"),
    )
    .with_for_update()
)
_VERSION = select(_THREAD.c.version, _THREAD.c.hidden).where(*NAMED)
_INSERT: dict[str, Any] = {column.name: bindparam(column.name) for column in _FILE.columns} | {
    "due_at": now_ms() + cast(bindparam("in_ms"), BigInteger)
}
_FINISH = (
    update(_FILE)
    .where(_FILE.c.file_id == bindparam("of_file"), _FILE.c.state == FileState.uploading.value)
    .values(
        state=FileState.ready.value,
        byte_size=bindparam("new_size"),
        sha256=bindparam("new_hash"),
        due_at=now_ms() + cast(bindparam("in_ms"), BigInteger),
    )
)
_ABANDON = (
    update(_FILE)
    .where(_FILE.c.file_id == bindparam("of_file"))
    .values(
        state=FileState.deleting.value,
        request_key=None,
        due_at=now_ms() + cast(bindparam("in_ms"), BigInteger),
    )
)
_USER = select(_MESSAGE.c.message_id).where(
    _MESSAGE.c.version == bindparam("version"), _MESSAGE.c.message_id == bindparam("message_id")
)
_REMOVE = delete(_FILE).where(_FILE.c.file_id == bindparam("of_file"))

logger = logging.getLogger(__name__)


async def begin(runtime: Runtime, file: File, *, thread_id: str | None, trusted: bool) -> File | None:
    """The row of an upload; or the one that an earlier request with its key has made. Raises RateLimited."""

    async def work(connection: AsyncConnection) -> File | None:
        owned = {"owner": file.owner, "agent": file.agent}
        if thread_id is not None:
            # A thread belongs to its owner's names, so nobody else's can be meant; one may also come later.
            found = (await connection.execute(_VERSION, {**owned, "thread_id": thread_id})).first()
            file.version = found.version if found is not None and (trusted or not found.hidden) else None
        if file.request_key is not None:
            row = (await connection.execute(_BY_KEY, {**owned, "key": file.request_key})).mappings().first()
            if row is not None:
                known = File.of(row)
                if known.state == FileState.ready:
                    return known
                # The client's connection broke and it sends again: whoever still reads the first attempt gives it up.
                await connection.execute(_ABANDON, {"of_file": known.file_id, "in_ms": _given_up_ms(runtime)})
        if not await _inserted(connection, _row(runtime, file)):
            raise Unavailable("The same upload has just begun elsewhere. Send again.")
        return None

    recorded = await runtime.store.run_write(work)
    if recorded is None:
        await within_bounds(runtime, file)
    return recorded


async def begin_generated(runtime: Runtime, file: File) -> None:
    """As `begin`, of a file that the engine stores by itself."""
    async with runtime.store.autocommit() as connection:
        await connection.execute(_FILE.insert().values(_INSERT), _row(runtime, file))


async def within_bounds(runtime: Runtime, file: File) -> None:
    """After the row is there: of two uploads at once each sees the other. Raises RateLimited."""
    limit = runtime.settings.max_stored_bytes
    if limit is None:
        return
    async with runtime.store.autocommit() as connection:
        stored = await stored_bytes(connection, file.owner)
    if stored > limit:
        await give_up(runtime, file)
        raise RateLimited(
            f"The files of one identity may have {limit} bytes.", limit=limit, retry_after=_FULL_FOR_SECONDS
        )


async def measured(runtime: Runtime, file: File) -> None:
    """The size of an upload that did not say it counts from now on. Raises RateLimited."""
    if runtime.settings.max_stored_bytes is not None:
        async with runtime.store.autocommit() as connection:
            statement = update(_FILE).where(_FILE.c.file_id == file.file_id).values(byte_size=file.byte_size)
            await connection.execute(statement)
        await within_bounds(runtime, file)


async def finish(runtime: Runtime, file: File, *, used_by: str | None) -> None:
    """Raises NotFound when the row is gone, or the thread or the message (`used_by`) that the file was made for."""
    values = {
        "of_file": file.file_id,
        "new_size": file.byte_size,
        "new_hash": file.sha256,
        "in_ms": None if used_by is not None else runtime.unused_file_ms,
    }

    async def work(connection: AsyncConnection) -> None:
        if used_by is not None:
            # Whoever deletes the thread, or removes the message, holds the thread's row.
            locked = (
                select(_THREAD.c.version)
                .where(_THREAD.c.version == file.version)
                .with_for_update(read=True, key_share=True)
            )
            if (await connection.execute(locked)).first() is None:
                raise NotFound("thread")
            if (await connection.execute(_USER, {"version": file.version, "message_id": used_by})).first() is None:
                raise NotFound("message")
        if (await connection.execute(_FINISH, values)).rowcount != 1:
            raise NotFound("file", "The upload took too long, or was begun anew.")
        if used_by is not None:
            row = {"version": file.version, "message_id": used_by, "file_id": file.file_id}
            await connection.execute(_USE.insert(), row)

    await runtime.store.run_write(work)


async def give_up(runtime: Runtime, file: File) -> None:
    """Nothing is left of an upload; if that cannot be done now, the sweep does it."""
    try:
        async with runtime.store.autocommit() as connection:
            await connection.execute(_ABANDON, {"of_file": file.file_id, "in_ms": 0})
        await runtime.files.delete(file.file_id)
        async with runtime.store.autocommit() as connection:
            await connection.execute(_REMOVE, {"of_file": file.file_id})
    except Unavailable as error:
        logger.warning("An upload that failed is left to the sweep: %s", error)


def _row(runtime: Runtime, file: File) -> dict[str, Any]:
    return {**file.model_dump(), "in_ms": _given_up_ms(runtime)}


def _given_up_ms(runtime: Runtime) -> int:
    """After this long no process writes the bytes of an upload any more, so deleting them is for good."""
    return round(runtime.settings.upload_timeout.total_seconds() * 1000) + GRACE_MS


async def _inserted(connection: AsyncConnection, row: dict[str, Any]) -> bool:
    statement = insert_once(_FILE, connection.dialect.name).values(_INSERT).returning(_FILE.c.file_id)
    return (await connection.execute(statement, row)).first() is not None
