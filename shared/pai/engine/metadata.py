"""The metadata of threads and runs, public and private, for code that is trusted with them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select

from pai.contract import Schema
from pai.engine import receipts
from pai.engine.content import checked_metadata
from pai.engine.locked import NAMED
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import NotFound
from pai.protocol.ids import is_id
from pai.protocol.text import clean
from pai.protocol.trusted import MetadataRecord, MetadataRequest
from pai.store.tables import Run, RunTable, Thread, ThreadTable, table_of

_THREAD, _RUN = table_of(ThreadTable), table_of(RunTable)
_OF_THREAD = select(_THREAD.c.meta, _THREAD.c.private_meta, _THREAD.c.version, _THREAD.c.revision).where(*NAMED)
_OF_RUN = (
    select(_RUN.c.meta, _RUN.c.private_meta, _THREAD.c.version, _THREAD.c.revision)
    .join(_THREAD, _THREAD.c.version == _RUN.c.version)
    .where(*NAMED, _RUN.c.run_id == bindparam("run_id"))
)


async def read_metadata(
    runtime: Runtime, caller: Caller, thread_id: str, *, run_id: str | None = None
) -> MetadataRecord:
    """Of the thread, or of one of its runs. Raises Forbidden, NotFound."""
    caller.require_trust()
    what = "thread" if run_id is None else "run"
    if not is_id(thread_id) or not is_id(run_id or thread_id):
        raise NotFound(what)
    names = caller.names(thread_id)
    query, parameters = (_OF_THREAD, names) if run_id is None else (_OF_RUN, {**names, "run_id": run_id})
    async with runtime.store.autocommit() as connection:
        row = (await connection.execute(query, parameters)).first()
    if row is None:
        raise NotFound(what)
    return MetadataRecord(
        metadata=row.meta, private_metadata=row.private_meta, version=row.version, revision=row.revision
    )


async def change_metadata(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    request: MetadataRequest,
    *,
    run_id: str | None = None,
    key: str | None = None,
) -> Reply[MetadataRecord]:
    """Sets keys of the thread's metadata, or of a run's. Raises Forbidden, NotFound, ValidationFailed,
    IdempotencyConflict."""
    caller.require_trust()
    changes, private = clean(request.metadata or {}), clean(request.private_metadata or {})
    return await _change(runtime, caller, thread_id, changes, private, run_id=run_id, key=key)


async def update_metadata(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    changes: Mapping[str, Any],
    *,
    private: Mapping[str, Any] | None = None,
) -> None:
    """For an agent's own code, which acts for any caller. Raises NotFound, ValidationFailed."""
    await _change(runtime, caller, thread_id, changes, private or {}, run_id=None, key=None)


async def _change(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    changes: Mapping[str, Any],
    private: Mapping[str, Any],
    *,
    run_id: str | None,
    key: str | None,
) -> Reply[MetadataRecord]:
    async def decide(tx: ThreadTransaction) -> MetadataRecord:
        agent = tx.agent
        if run_id is None:
            record: Thread | Run | None = tx.thread
            public_schema, private_schema = agent.thread_metadata, agent.private_thread_metadata
        else:
            record = await tx.run(run_id)
            public_schema, private_schema = agent.run_metadata, agent.private_run_metadata
        if record is None:
            raise NotFound("run")
        _merge(tx, record, "meta", changes, public_schema, at="metadata")
        _merge(tx, record, "private_meta", private, private_schema, at="privateMetadata")
        return MetadataRecord(
            metadata=record.meta,
            private_metadata=record.private_meta,
            version=tx.version,
            revision=tx.revision,
        )

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=MetadataRecord,
        key=key,
        request_hash=receipts.request_hash(f"metadata {thread_id} {run_id}", [dict(changes), dict(private)]),
        decide=decide,
    )


def _merge(
    tx: ThreadTransaction, record: Thread | Run, column: str, changes: Mapping[str, Any], schema: Schema, *, at: str
) -> None:
    """The record is checked as a whole, as it will be."""
    before: dict[str, Any] = getattr(record, column)
    if not changes:
        return
    merged = checked_metadata(schema, {**before, **changes}, at=at)
    if merged != before:
        tx.update(record, **{column: merged})
