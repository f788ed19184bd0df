"""Recall: queued input is taken back before its turn, or it was admitted; never both, never neither."""

from sqlalchemy import select

from pai.engine import receipts, records
from pai.engine.advance import advance
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import NotFound, QueueItemAdmitted
from pai.protocol.requests import MutationResult
from pai.protocol.state import RunStatus
from pai.store.tables import Run, RunTable, table_of

_RUN = table_of(RunTable)


async def recall(
    runtime: Runtime, caller: Caller, thread_id: str, queue_item_id: str, *, key: str | None = None
) -> Reply[MutationResult]:
    """Removes a queued item and cancels its run, leaving no trace in the transcript.

    Raises NotFound, QueueItemAdmitted, IdempotencyConflict.
    """

    async def decide(tx: ThreadTransaction) -> MutationResult:
        item = next((item for item in await tx.queue() if item.queue_item_id == queue_item_id), None)
        if item is None:
            raise await _not_queued(tx, queue_item_id)
        run = await tx.run(item.run_id)
        cancelled = [records.queued_item(item)]
        await tx.take_queue_item(item)
        if run is None:
            raise NotFound("queue_item")
        tx.update(run, status=RunStatus.cancelled, completed_at=tx.now, input_message_ids=None)
        await advance(tx)
        return MutationResult(
            run=records.run_state(run, thread_id=thread_id),
            queue_item_id=queue_item_id,
            cancelled=cancelled,
            version=tx.version,
            revision=tx.revision,
        )

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MutationResult,
        key=key,
        request_hash=receipts.request_hash(f"recall {thread_id} {queue_item_id}", None),
        decide=decide,
    )


async def _not_queued(tx: ThreadTransaction, queue_item_id: str) -> Exception:
    query = select(_RUN).where(_RUN.c.version == tx.version, _RUN.c.queue_item_id == queue_item_id)
    row = (await tx.connection.execute(query)).mappings().first()
    if row is None or Run.of(row).input_message_ids is None:
        return NotFound("queue_item")
    return QueueItemAdmitted()
