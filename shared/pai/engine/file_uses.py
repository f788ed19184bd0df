"""Which messages use which files: counted in the transaction that changes the messages.

Whoever takes or gives back a use holds the file's row, and so does the sweep when it decides that nobody uses a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Executable, bindparam, cast, delete, func, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.fold.reserved import Reserved
from pai.protocol.errors import NotFound
from pai.store.clock import now_ms
from pai.store.store import execute_all
from pai.store.tables import FileState, FileTable, FileUseTable, Thread, table_of

_FILE, _USE = table_of(FileTable), table_of(FileUseTable)

_MADE_FOR = _FILE.alias()

_OF_OWNER = (_FILE.c.owner == bindparam("of_owner"), _FILE.c.agent == bindparam("of_agent"))
# In the order of their ids, so that two transactions never wait for each other.
_LOCK = (
    select(_FILE.c.file_id, _FILE.c.state)
    .where(_FILE.c.file_id.in_(bindparam("file_ids", expanding=True)), *_OF_OWNER)
    .order_by(_FILE.c.file_id)
    .with_for_update()
)
_TAKE = (
    update(_FILE)
    .where(_FILE.c.file_id == bindparam("of_file"), *_OF_OWNER)
    .values(due_at=None, version=func.coalesce(_FILE.c.version, bindparam("user_version")))
)
_GIVE_BACK = (
    update(_FILE)
    .where(_FILE.c.file_id == bindparam("of_file"), _FILE.c.state == FileState.ready.value, *_OF_OWNER)
    .values(due_at=now_ms() + cast(bindparam("in_ms"), BigInteger))
)
_KEEP = _USE.insert()
_FORGET = delete(_USE).where(
    _USE.c.version == bindparam("of_version"),
    _USE.c.message_id == bindparam("of_message"),
    _USE.c.file_id == bindparam("of_file"),
)
_OF_MESSAGES = select(_USE.c.message_id, _USE.c.file_id).where(
    _USE.c.version == bindparam("version"), _USE.c.message_id.in_(bindparam("message_ids", expanding=True))
)
_OF_THREAD = (
    select(_FILE.c.file_id)
    .where(
        _FILE.c.file_id.in_(
            union(
                select(_MADE_FOR.c.file_id).where(_MADE_FOR.c.version == bindparam("version")),
                select(_USE.c.file_id).where(_USE.c.version == bindparam("version")),
            )
        )
    )
    .order_by(_FILE.c.file_id)
    .with_for_update()
)
_DUE = (
    update(_FILE)
    .where(_FILE.c.file_id == bindparam("of_file"), _FILE.c.state == FileState.ready.value)
    .values(due_at=now_ms())
)


class FileUses:
    """What one transaction does to the uses of files by messages of its thread."""

    def __init__(self) -> None:
        self._changes: Counter[tuple[str, str]] = Counter()
        self._removed: set[str] = set()

    def gained(self, message_id: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """A message is there now, in the transcript or in the queue."""
        for file_id in _attached(parts):
            self._changes[message_id, file_id] += 1

    def lost(self, message_id: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """A person's message went, or moved to where it is gained again."""
        for file_id in _attached(parts):
            self._changes[message_id, file_id] -= 1

    def removed(self, message_id: str) -> None:
        """A message left the transcript, and with it every use, also by what a model said before it began anew."""
        self._removed.add(message_id)
        for use in [use for use in self._changes if use[0] == message_id]:
            del self._changes[use]

    def moved(self, old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> None:
        """The messages of a queue item changed."""
        for message in old:
            self.lost(message["id"], message["parts"])
        for message in new:
            self.gained(message["id"], message["parts"])

    async def settle(self, connection: AsyncConnection, thread: Thread, *, unused_ms: int) -> None:
        """Writes it down. Raises NotFound when a file that a message wants to use is gone or somebody else's.

        A file that nothing uses any more is kept for `unused_ms`, so that input that was taken back can be sent again.
        """
        gained = [use for use, change in self._changes.items() if change > 0]
        lost = [use for use, change in self._changes.items() if change < 0]
        if self._removed:
            # Nobody writes another one: whoever does holds the thread's row.
            of_messages = {"version": thread.version, "message_ids": sorted(self._removed)}
            lost += [(row.message_id, row.file_id) for row in await connection.execute(_OF_MESSAGES, of_messages)]
        if not gained and not lost:
            return
        owned = {"of_owner": thread.owner, "of_agent": thread.agent}
        file_ids = sorted({file_id for _, file_id in [*gained, *lost]})
        rows = await connection.execute(_LOCK, {"file_ids": file_ids, **owned})
        ready = {row.file_id for row in rows if row.state == FileState.ready}
        wanted = {file_id for _, file_id in gained}
        if wanted - ready:
            raise NotFound("file")
        writes: list[tuple[Executable, Any]] = []
        if lost:
            names = [
                {"of_version": thread.version, "of_message": message_id, "of_file": file_id}
                for message_id, file_id in lost
            ]
            writes.append((_FORGET, names))
            back = sorted({file_id for _, file_id in lost} - wanted)
            if back:
                writes.append((_GIVE_BACK, [{"of_file": file_id, "in_ms": unused_ms, **owned} for file_id in back]))
        if gained:
            uses = [
                {"version": thread.version, "message_id": message_id, "file_id": file_id}
                for message_id, file_id in gained
            ]
            writes.append((_KEEP, uses))
            taken = [{"of_file": file_id, "user_version": thread.version, **owned} for file_id in sorted(wanted)]
            writes.append((_TAKE, taken))
        await execute_all(connection, writes)


async def release_thread(connection: AsyncConnection, version: str) -> None:
    """Before the thread's row goes, and its uses with it: the sweep looks at its files now."""
    rows = await connection.execute(_OF_THREAD, {"version": version})
    due = [{"of_file": row.file_id} for row in rows]
    if due:
        await execute_all(connection, [(_DUE, due)])


def _attached(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The files of a message's attachments, each once: one message uses a file or not."""
    found = [part.get("data") for part in parts if part.get("type") == Reserved.ATTACHMENT]
    return iter({str(data.get("fileId")) for data in found if isinstance(data, Mapping)})
