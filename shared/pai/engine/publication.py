"""What a committed transaction tells the world, and how a log that was lost is opened again."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, select, update

from pai.engine.records import thread_summary
from pai.log.batches import LogState, PublishStatus, TransactionBatch
from pai.log.entries import Field, ResetReason
from pai.log.event_log import EventLog
from pai.protocol.json import dumps
from pai.protocol.state import ThreadStatus
from pai.store.store import Store, fetch_all
from pai.store.tables import Thread, ThreadTable, table_of

_THREAD = table_of(ThreadTable)
_RAISE_EPOCH = (
    update(_THREAD)
    .where(_THREAD.c.version == bindparam("of_version"), _THREAD.c.log_epoch == bindparam("epoch"))
    .values(log_epoch=_THREAD.c.log_epoch + 1)
    .returning(_THREAD.c.log_epoch, _THREAD.c.revision)
)
_EPOCH = select(_THREAD.c.log_epoch, _THREAD.c.status).where(_THREAD.c.version == bindparam("version"))

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Publication:
    """`opening`: this transaction created the thread or raised its epoch, and makes the one opening attempt.

    `streaming`: a model step of the thread is under way. `flags`: what it had to say to other threads.
    """

    thread: Thread
    epoch: int
    revision: int
    entries: list[Field]
    floor: int = 0
    finished: Sequence[int] = ()
    opening: bool = False
    reason: ResetReason | None = None
    head: bool = False
    streaming: bool = False
    dispatches: Sequence[tuple[str, str]] = ()
    signals: Sequence[tuple[str, int]] = field(default=())
    flags: Sequence[str] = field(default=())


def head_event(thread: Thread) -> bytes:
    return dumps({"type": "head", "summary": thread_summary(thread).wire()})


async def raise_epoch(store: Store, *, version: str, epoch: int) -> tuple[int, int] | None:
    """Makes `epoch` history. -> the new epoch and the thread's revision; None when somebody else did, or it is gone.

    Whoever gets an epoch from here makes exactly one attempt to open it, so no sequence is ever used twice.
    """
    async with store.autocommit() as connection:
        row = (await connection.execute(_RAISE_EPOCH, {"of_version": version, "epoch": epoch})).first()
    return None if row is None else (row.log_epoch, row.revision)


async def reopen(log: EventLog, store: Store, *, version: str, epoch: int) -> None:
    """The log lost the thread: opens the next epoch with a `reset`, which covers every revision committed so far.

    When another writer raised the epoch first, its `reset` came after this transaction's commit and covers it.
    """
    raised = await raise_epoch(store, version=version, epoch=epoch)
    if raised is None:
        return
    batch = TransactionBatch(
        version=version,
        epoch=raised[0],
        revision=raised[1],
        entries=[],
        floor=0,
        finished=[],
        opening=True,
        reason=ResetReason.LOST,
    )
    result = await log.publish_transaction(batch)
    if result.status is PublishStatus.LOST:
        logger.info("The log of %s was lost again while it was opened.", version)


async def reopen_if_lost(log: EventLog, store: Store, version: str) -> bool:
    """Opens the log of a thread that was lost while nobody wrote to it. -> whether watchers are told by the log.

    While a model speaks, its worker does that, because it alone knows what was streamed.
    """
    async with store.autocommit() as connection:
        [rows] = await fetch_all(connection, [(_EPOCH, {"version": version})])
    if not rows or rows[0]["status"] == ThreadStatus.running:
        return False
    epoch = rows[0]["log_epoch"]
    read = await log.read_after(version, sequence=0, limit=0)
    if read.state is LogState.DELETED or (read.state is LogState.LIVE and read.epoch >= epoch):
        return False
    await reopen(log, store, version=version, epoch=epoch)
    return True
