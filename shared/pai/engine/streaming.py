"""What a model step stores while it streams: checkpoints of its folding, and the next epoch after a loss."""

import contextlib

from sqlalchemy import bindparam, exists, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.locked import lock_by_version
from pai.engine.runtime import Runtime
from pai.engine.transaction import StepLost
from pai.fold import Fold
from pai.log.errors import LogError
from pai.log.live_channel import LiveChannel, Reopening
from pai.log.sequences import sequence_of
from pai.store.tables import MessageTable, Step, StepState, StepTable, ThreadTable, table_of

_THREAD, _MESSAGE, _STEP = table_of(ThreadTable), table_of(MessageTable), table_of(StepTable)

_HELD = exists().where(
    _STEP.c.step_id == bindparam("of_step"),
    _STEP.c.attempt == bindparam("of_attempt"),
    _STEP.c.state == StepState.running.value,
)
_STORE = (
    update(_MESSAGE)
    .where(_MESSAGE.c.version == bindparam("of_version"), _MESSAGE.c.message_id == bindparam("of_message"), _HELD)
    .values(
        parts=bindparam("parts"),
        meta=bindparam("meta"),
        folding=bindparam("folding"),
        stored_sequence=bindparam("stored_sequence"),
    )
)


def _folded(fold: Fold) -> dict[str, object]:
    message = fold.message
    return {"parts": message["parts"], "meta": message["metadata"], "folding": fold.folding()}


async def checkpoint(runtime: Runtime, step: Step, fold: Fold, *, sequence: int) -> None:
    """Stores the folding as of `sequence`, and trims the log below it. Raises StepLost."""
    values = {**_step(step), **_folded(fold), "stored_sequence": sequence}

    async def work(connection: AsyncConnection) -> None:
        # Without the lock a take-over that commits meanwhile is not seen: a statement that waited for a row looks again
        # at that row, but not at the step.
        if await lock_by_version(connection, version=step.version) is None:
            raise StepLost(step.step_id)
        if (await connection.execute(_STORE, values)).rowcount != 1:
            raise StepLost(step.step_id)

    await runtime.store.run_write(work)
    with contextlib.suppress(LogError):  # the next checkpoint trims as well
        await runtime.log.trim(step.version, below=sequence, keep=runtime.settings.log_keep)


async def reopen_stream(runtime: Runtime, step: Step, fold: Fold, channel: LiveChannel) -> Reopening:
    """The log lost the thread while a step streams: stores all that was folded, under an epoch nobody has published in.

    Raises StepLost when the step is not this attempt's any more.
    """
    covered = channel.written
    folded = _folded(fold)

    async def work(connection: AsyncConnection) -> Reopening:
        thread = await lock_by_version(connection, version=step.version)
        if thread is None:
            raise StepLost(step.step_id)
        opening = thread.log_epoch == channel.epoch
        epoch = thread.log_epoch + 1 if opening else thread.log_epoch
        values = {**_step(step), **folded, "stored_sequence": sequence_of(epoch, 0)}
        if (await connection.execute(_STORE, values)).rowcount != 1:
            raise StepLost(step.step_id)
        if opening:
            await connection.execute(update(_THREAD).where(_THREAD.c.version == thread.version).values(log_epoch=epoch))
        return Reopening(epoch=epoch, opening=opening, revision=thread.revision, covered=covered)

    return await runtime.store.run_write(work)


def _step(step: Step) -> dict[str, object]:
    return {
        "of_version": step.version,
        "of_message": step.message_id,
        "of_step": step.step_id,
        "of_attempt": step.attempt,
    }
