"""Clean-up: uploads that never ended, files that no message uses. Bytes go first, and the row when they are gone."""

import logging

from sqlalchemy import BigInteger, bindparam, cast, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.runtime import Runtime
from pai.protocol.errors import Unavailable
from pai.store.clock import now_ms, now_once
from pai.store.tables import File, FileState, FileTable, FileUseTable, table_of

_FILE, _USE = table_of(FileTable), table_of(FileUseTable)

BATCH = 20
AGAIN_MS = 60_000
"""When another worker tries, after one that could not delete the bytes or died meanwhile."""

# The clock in a subquery is read once, so that the index on `due_at` can be asked.
_IS_DUE = _FILE.c.due_at <= now_once()
_ANY_DUE = select(_FILE.c.file_id).where(_IS_DUE).order_by(_FILE.c.due_at).limit(1)
_DUE = select(_FILE).where(_IS_DUE).order_by(_FILE.c.due_at).limit(BATCH).with_for_update(skip_locked=True)
_USED = select(_USE.c.file_id).where(_USE.c.file_id.in_(bindparam("file_ids", expanding=True))).distinct()
_KEEP = update(_FILE).where(_FILE.c.file_id.in_(bindparam("file_ids", expanding=True))).values(due_at=None)
_TAKE = (
    update(_FILE)
    .where(_FILE.c.file_id.in_(bindparam("file_ids", expanding=True)))
    .values(
        state=FileState.deleting.value,
        request_key=None,
        due_at=now_ms() + cast(bindparam("in_ms"), BigInteger),
    )
)
_REMOVE = delete(_FILE).where(_FILE.c.file_id == bindparam("of_file"), _FILE.c.state == FileState.deleting.value)

logger = logging.getLogger(__name__)


async def clean_files(runtime: Runtime) -> int:
    """One round. -> how many files were looked at; `BATCH` means that there may be more.

    Raises Unavailable without SQL; files whose bytes cannot be deleted now are tried again later.
    """
    async with runtime.store.autocommit() as connection:
        if (await connection.execute(_ANY_DUE)).first() is None:
            return 0
    seen, unused = await runtime.store.run_write(_take)
    for file_id in unused:
        runtime.faults.hit("file.before_bytes")
        try:
            await runtime.files.delete(file_id)
        except Unavailable as error:
            logger.warning("The file %s is deleted later: %s", file_id, error)
            continue
        runtime.faults.hit("file.before_row")
        async with runtime.store.autocommit() as connection:
            await connection.execute(_REMOVE, {"of_file": file_id})
    return seen


async def _take(connection: AsyncConnection) -> tuple[int, list[str]]:
    """-> how many are due, and those of them that go: their rows say so before any byte is touched.

    The rows are held before it is asked who uses them, and whoever takes or gives back a use holds the row, too.
    """
    files = [File.of(row) for row in (await connection.execute(_DUE)).mappings()]
    ready = [file.file_id for file in files if file.state == FileState.ready]
    rows = await connection.execute(_USED, {"file_ids": ready}) if ready else ()
    used = {row.file_id for row in rows}
    unused = [file.file_id for file in files if file.file_id not in used]
    if used:
        await connection.execute(_KEEP, {"file_ids": list(used)})
    if unused:
        await connection.execute(_TAKE, {"file_ids": unused, "in_ms": AGAIN_MS})
    return len(files), unused
