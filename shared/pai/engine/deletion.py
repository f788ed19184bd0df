"""Deleting: a thread goes with everything that belongs to it, at once, and everybody is told."""

from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy import delete as delete_rows
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.file_uses import release_thread
from pai.engine.locked import lock_by_version
from pai.engine.mutation import lock_for
from pai.engine.relatives import part_with_relatives
from pai.engine.runtime import Caller, Runtime
from pai.log.errors import LogError
from pai.log.event_log import soon
from pai.protocol.json import dumps
from pai.store.tables import Step, StepState, StepTable, Thread, ThreadTable, table_of

_THREAD, _STEP = table_of(ThreadTable), table_of(StepTable)
_RUNNING = select(_STEP).where(_STEP.c.version == bindparam("version"), _STEP.c.state == StepState.running.value)


@dataclass(frozen=True, slots=True)
class _Deleted:
    """`running`: steps to be told; `flags`: what other threads are to be told."""

    thread: Thread
    running: list[Step]
    flags: list[str]


async def delete(runtime: Runtime, caller: Caller, thread_id: str) -> None:
    """Removes the whole aggregate at once and tells watchers; work in flight is aborted and its results are refused.

    Deleting what does not exist is no error.
    """

    async def work(connection: AsyncConnection) -> _Deleted | None:
        thread = await lock_for(connection, caller, thread_id)
        return None if thread is None else await _remove(connection, thread)

    await _tell_deleted(runtime, await runtime.store.run_write(work))


async def delete_version(runtime: Runtime, version: str) -> bool:
    """As `delete`, of one incarnation, by the engine itself. -> whether it was there."""

    async def work(connection: AsyncConnection) -> _Deleted | None:
        thread = await lock_by_version(connection, version=version)
        return None if thread is None else await _remove(connection, thread)

    deleted = await runtime.store.run_write(work)
    await _tell_deleted(runtime, deleted)
    return deleted is not None


async def _remove(connection: AsyncConnection, thread: Thread) -> _Deleted:
    rows = (await connection.execute(_RUNNING, {"version": thread.version})).mappings()
    running = [Step.of(row) for row in rows]
    flags = await part_with_relatives(connection, thread)
    await release_thread(connection, thread.version)
    await connection.execute(delete_rows(_THREAD).where(_THREAD.c.version == thread.version))
    return _Deleted(thread, running, flags)


async def _tell_deleted(runtime: Runtime, deleted: _Deleted | None) -> None:
    if deleted is None:
        return
    runtime.faults.hit("delete.before_publish")
    thread, running = deleted.thread, deleted.running
    if deleted.flags:
        runtime.deliver(deleted.flags)
    removed = dumps({"type": "removed", "threadId": thread.thread_id, "version": thread.version})
    try:
        # Awaited, so that the id may be used again when the caller has the answer.
        async with soon():
            await runtime.log.delete(thread.version)
            if not thread.hidden:
                await runtime.log.publish_head(thread.owner, thread.agent, removed)
            if running and runtime.signals is not None:
                await runtime.signals.publish_stop([(step.step_id, step.attempt + 1) for step in running])
    except LogError:
        runtime.announcer.failures += 1
