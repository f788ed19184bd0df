"""The snapshot of a thread, exact as of a sequence and a revision, also in mid-answer.

One consistent SQL read, then one read of the log; the live chunks beyond what SQL holds are folded on top. When the log
is ahead of the SQL read it is read again.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine import records
from pai.engine.locked import BY_NAME, thread_of, version_by_name
from pai.engine.runtime import Caller, Runtime
from pai.engine.transaction import SHOWN
from pai.fold import Fold, FoldError
from pai.log.batches import LogRead, LogState
from pai.log.entries import EntryKind
from pai.log.errors import LogError
from pai.log.event_log import soon
from pai.log.sequences import epoch_of, sequence_of
from pai.protocol.ids import is_id
from pai.protocol.json import loads
from pai.protocol.state import TransportState
from pai.store.store import fetch_all
from pai.store.tables import MessageTable, QueueItem, QueueItemTable, Run, RunTable, Thread, table_of

_RUN, _MESSAGE, _QUEUE = table_of(RunTable), table_of(MessageTable), table_of(QueueItemTable)
_SHOWN_COLUMNS = ("message_id", "role", "meta", "parts", "open", "folding", "stored_sequence")
_ALL_MESSAGES = (
    select(*(_MESSAGE.c[name] for name in _SHOWN_COLUMNS))
    .where(_MESSAGE.c.version == version_by_name())
    .order_by(_MESSAGE.c.position)
)
_MESSAGES = _ALL_MESSAGES.where(_MESSAGE.c.visibility.in_(SHOWN))
_RUNS = select(_RUN).where(_RUN.c.version == version_by_name()).order_by(_RUN.c.position)
_ITEMS = select(_QUEUE).where(_QUEUE.c.version == version_by_name()).order_by(_QUEUE.c.position)

READS = 5

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Rows:
    thread: Thread
    messages: list[dict[str, Any]]
    runs: list[Run]
    items: list[QueueItem]


async def get_state(runtime: Runtime, caller: Caller, thread_id: str) -> TransportState | None:
    """The snapshot; None when the thread does not exist. Callers that ask at the same time share one read."""
    key = f"{caller.owner} {caller.agent.name} {thread_id} {caller.trusted}"
    waiting = runtime.reading.get(key)
    if waiting is not None and not waiting.get_loop().is_closed():
        # The read under way may have begun before the caller's own last write, so that one is not enough: the next is.
        return await asyncio.shield(_next_read(runtime, key, waiting, caller, thread_id))
    return await asyncio.shield(_start_read(runtime, key, caller, thread_id))


def _start_read(runtime: Runtime, key: str, caller: Caller, thread_id: str) -> asyncio.Task[TransportState | None]:
    task = asyncio.get_running_loop().create_task(read_state(runtime, caller, thread_id))
    runtime.reading[key] = task
    task.add_done_callback(lambda done: runtime.reading.pop(key, None) if runtime.reading.get(key) is done else None)
    return task


def _next_read(
    runtime: Runtime, key: str, running: asyncio.Task[Any], caller: Caller, thread_id: str
) -> asyncio.Task[TransportState | None]:
    """The read that begins when the one under way ends, shared by all who came meanwhile."""
    later = f"{key} next"
    task = runtime.reading.get(later)
    if task is None:

        async def follow() -> TransportState | None:
            await asyncio.wait([running])
            runtime.reading.pop(later, None)
            return await _start_read(runtime, key, caller, thread_id)

        task = runtime.reading[later] = asyncio.get_running_loop().create_task(follow())
    return task


async def read_state(runtime: Runtime, caller: Caller, thread_id: str) -> TransportState | None:
    if not is_id(thread_id):
        return None
    state: TransportState | None = None
    for attempt in range(READS):
        async with runtime.store.read() as connection:
            rows = await _read_rows(connection, caller, thread_id)
        if rows is None:
            return None
        try:
            async with soon():
                log = await runtime.log.read_messages_after(
                    rows.thread.version,
                    positions={
                        message["message_id"]: message["stored_sequence"]
                        for message in rows.messages
                        if message["open"]
                    },
                )
        except LogError:
            # Without the log there is nothing newer than SQL that anybody could see.
            log = LogRead(LogState.MISSING)
        state, exact = _joined(rows, log)
        if exact:
            return state
        await asyncio.sleep(0.005 * attempt)
    logger.info("The log of %s/%s stayed ahead of SQL for %d reads.", caller.owner, thread_id, READS)
    return state


async def _read_rows(connection: AsyncConnection, caller: Caller, thread_id: str) -> _Rows | None:
    name = caller.names(thread_id)
    query = _ALL_MESSAGES if caller.trusted else _MESSAGES
    threads, messages, runs, items = await fetch_all(
        connection, [(BY_NAME, name), (query, name), (_RUNS, name), (_ITEMS, name)]
    )
    thread = thread_of(threads)
    if thread is None or not caller.sees(thread):
        return None
    return _Rows(thread, messages, [Run.of(row) for row in runs], [QueueItem.of(row) for row in items])


def _joined(rows: _Rows, log: LogRead) -> tuple[TransportState, bool]:
    """The state as of the log's head, and whether it is exact."""
    thread = rows.thread
    start = sequence_of(thread.log_epoch, 0)
    current = log.state is LogState.LIVE and log.epoch == thread.log_epoch
    exact = not (log.state is LogState.LIVE and (log.epoch > thread.log_epoch or log.revision > thread.revision))
    messages: list[dict[str, Any]] = []
    folding: dict[str, Any] = {}
    for message in rows.messages:
        record: dict[str, Any] = {
            "id": message["message_id"],
            "role": message["role"],
            "metadata": message["meta"],
            "parts": message["parts"],
        }
        if message["open"]:
            fold = Fold(record, message["folding"])
            if current:
                exact &= _fold_on(fold, message, log)
            record = fold.message
            folding[message["message_id"]] = fold.folding()
        messages.append(record)
    state = TransportState(
        thread=records.thread_head(thread),
        messages=messages,
        runs=[records.run_state(run, thread_id=thread.thread_id) for run in rows.runs],
        active_run_id=records.active_run_id(thread),
        queue=records.queue_state(rows.items),
        usage=records.usage(thread.usage),
        capabilities=records.capabilities(thread),
        error=records.thread_error(thread),
        sequence=log.last if current else start,
        revision=thread.revision,
        folding=folding,
    )
    return state, exact


def _fold_on(fold: Fold, message: dict[str, Any], log: LogRead) -> bool:
    """Applies the live chunks that SQL does not hold yet. -> whether none is missing.

    What was trimmed was stored first, so a read of SQL that is older than the trim shows by what is missing in between.
    """
    stored = message["stored_sequence"]
    joined = epoch_of(stored) != log.epoch or log.oldest <= stored + 1
    begun = stored > 0 or bool(message["parts"])
    for entry in log.entries:
        if entry.kind is not EntryKind.CHUNK or entry.message_id != message["message_id"]:
            continue
        if entry.revision is not None or entry.sequence <= stored:
            # What a transaction published is in SQL when its revision is; a later one makes the read repeat.
            continue
        chunk = loads(entry.body)
        joined &= begun or chunk["type"] == "start"
        begun = True
        try:
            fold.apply(chunk)
        except FoldError:
            joined = False
    return joined
