"""Stop: a take-over by whoever handles the request. One path for unclaimed, live, dead and waiting runs.

The thread is free when the call returns; the worker is told to abort, and may add the usage of the aborted call later.
"""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine import receipts, records
from pai.engine.advance import add_side_step, advance, end_run
from pai.engine.closing import is_empty, message_aborted, open_parts_ended, unsettled_calls_failed
from pai.engine.mutation import lock_for, recorded_result
from pai.engine.plan import RunHook, SideHook
from pai.engine.publication import Publication
from pai.engine.relatives import stop_children
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.takeover import (
    Fenced,
    Which,
    adopt_tail,
    check_fenced,
    none_of_them,
    start_new_epoch_if_blind,
    take_over,
)
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import NotFound, RunNotActive
from pai.protocol.requests import MutationResult, StopRunRequest, StopThreadRequest
from pai.protocol.state import ErrorCode, QueuedItem, RunStatus
from pai.store.tables import Run, StepState, Thread

DEFAULT_REASON = "stopped"


async def stop_thread(
    runtime: Runtime, caller: Caller, thread_id: str, request: StopThreadRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Cancels the current run; `continue_with` says which queued inputs go on, the others are cancelled and returned.

    Nothing to stop is no error. Raises NotFound, IdempotencyConflict.
    """

    async def decide(tx: ThreadTransaction, fenced: Fenced) -> MutationResult:
        run, cancelled = await stop_all(tx, fenced, reason=request.reason, keep=request.continue_with)
        return MutationResult(
            run=None if run is None else records.run_state(run, thread_id=thread_id),
            cancelled=cancelled or None,
            version=tx.version,
            revision=tx.revision,
        )

    content = receipts.request_hash(f"stop {thread_id}", request.wire())
    return await _stop(runtime, caller, thread_id, run_id=None, key=key, request_hash=content, decide=decide)


async def stop_run(
    runtime: Runtime, caller: Caller, thread_id: str, run_id: str, request: StopRunRequest, *, key: str | None = None
) -> Reply[MutationResult]:
    """Cancels exactly this running or waiting run; the queue proceeds. Raises NotFound, RunNotActive."""

    async def decide(tx: ThreadTransaction, fenced: Fenced) -> MutationResult:
        run = await tx.run(run_id)
        if run is None:
            raise NotFound("run")
        if run.status not in (RunStatus.running, RunStatus.waiting):
            raise RunNotActive(run.status)
        await check_fenced(tx, fenced, run_id=run_id)
        await stop_children(tx, run_id=run_id)
        await cancel_run(tx, run, fenced, reason=request.reason)
        await advance(tx)
        return MutationResult(run=records.run_state(run, thread_id=thread_id), version=tx.version, revision=tx.revision)

    content = receipts.request_hash(f"stop {thread_id} {run_id}", request.wire())
    return await _stop(runtime, caller, thread_id, run_id=run_id, key=key, request_hash=content, decide=decide)


async def _stop(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    *,
    run_id: str | None,
    key: str | None,
    request_hash: str,
    decide: Callable[[ThreadTransaction, Fenced], Awaitable[MutationResult]],
) -> Reply[MutationResult]:
    reply: list[Reply[MutationResult]] = []

    async def find(connection: AsyncConnection) -> Thread | None:
        return await lock_for(connection, caller, thread_id)

    async def choose(connection: AsyncConnection, thread: Thread) -> Which:
        """The steps of the run that is stopped; none when the request is refused or was done before."""
        current = thread.current_run_id
        if current is None or run_id not in (None, current):
            return none_of_them
        if await recorded_result(connection, thread, key=key, request_hash=request_hash) is not None:
            return none_of_them
        return lambda step: step.run_id == current

    async def stopped(tx: ThreadTransaction, fenced: Fenced) -> Publication | None:
        reply.clear()
        recorded = await recorded_result(tx.connection, tx.thread, key=key, request_hash=request_hash)
        if recorded is not None:
            reply.append(Reply(MutationResult.read(recorded), replayed=True))
            return None
        answer = await decide(tx, fenced)
        tx.record(receipts.Request(key, request_hash), answer.wire())
        reply.append(Reply(answer))
        return await tx.flush()

    publication = await take_over(runtime, find, choose, stopped)
    if not reply:
        raise NotFound("thread")
    if publication is not None:
        await runtime.tell(publication)
    return reply[0]


async def stop_all(
    tx: ThreadTransaction, fenced: Fenced, *, reason: str | None, keep: str = "none"
) -> tuple[Run | None, list[QueuedItem]]:
    """Cancels the current run, the children's work, and the queued input but what `keep` says. -> what was cancelled.

    Raises StepsChanged.
    """
    run = await tx.current_run()
    await stop_children(tx)
    if run is not None:
        await check_fenced(tx, fenced, run_id=run.run_id)
        await cancel_run(tx, run, fenced, reason=reason)
    cancelled = await _cancel_queued(tx, keep=keep, reason=reason)
    await advance(tx)
    return run, cancelled


async def cancel_run(tx: ThreadTransaction, run: Run, fenced: Fenced, *, reason: str | None) -> None:
    """Settles everything of a run that was fenced: its steps, its open message, its record."""
    start_new_epoch_if_blind(tx, fenced)
    told = tx.agent.hook(RunHook.on_run_finish) is None
    for step in await tx.live_steps():
        if step.run_id == run.run_id:
            # The hook that was being run when the stop came has begun to tell of another end.
            told |= step.name == RunHook.on_run_finish and step.state == StepState.running
            tx.end_step(step, StepState.cancelled)
    message = await tx.message(run.message_id) if run.message_id is not None else None
    if message is not None and message.open:
        fold = adopt_tail(tx, message, fenced)
        if is_empty(fold.message["parts"]):
            await tx.remove_message(message)
        else:
            tx.apply(message, *open_parts_ended(fold.folding()))
            tx.apply(message, *unsettled_calls_failed(fold.message["parts"], ErrorCode.stopped, now=tx.now))
            tx.apply(message, *message_aborted(reason or DEFAULT_REASON, now=tx.now))
            tx.update(message, open=False)
    tx.update(run, status=RunStatus.cancelled, reason=reason)
    await end_run(tx, run)
    if not told:
        # Beside the run, because the thread is free when a stop returns.
        add_side_step(tx, SideHook.on_run_cancelled, run_id=run.run_id)


async def _cancel_queued(tx: ThreadTransaction, *, keep: str, reason: str | None) -> list[QueuedItem]:
    cancelled: list[QueuedItem] = []
    for item in list(await tx.queue()):
        if keep == "all" or (keep == "steer" and item.mode == "steer"):
            continue
        cancelled.append(records.queued_item(item))
        await tx.take_queue_item(item)
        run = await tx.run(item.run_id)
        if run is not None:
            tx.update(run, status=RunStatus.cancelled, reason=reason, completed_at=tx.now, input_message_ids=None)
    return cancelled
