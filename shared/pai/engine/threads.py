"""Threads from outside: find, list, rename, and where a run stands."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Select, and_, bindparam, or_, select

from pai.engine import receipts, records
from pai.engine.locked import NAMED
from pai.engine.mutation import mutate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.transaction import ThreadTransaction
from pai.protocol.errors import Forbidden, NotFound, ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.ids import is_id
from pai.protocol.json import dumps, loads
from pai.protocol.requests import RenameRequest
from pai.protocol.state import RunState, ThreadListResult, ThreadStatus, ThreadSummary
from pai.protocol.text import clean_text
from pai.protocol.times import iso
from pai.store.tables import Run, RunTable, Thread, ThreadTable, table_of

_THREAD, _RUN = table_of(ThreadTable), table_of(RunTable)

_OWN = and_(
    *NAMED,
    or_(_THREAD.c.hidden.is_(False), bindparam("trusted", type_=Boolean)),
)
_RUN_OF_THREAD = (
    select(_RUN).join(_THREAD, _THREAD.c.version == _RUN.c.version).where(_OWN, _RUN.c.run_id == bindparam("run_id"))
)
_POSITION = select(_THREAD.c.version, _THREAD.c.revision).where(_OWN)

_LISTED = [
    _THREAD.c[name]
    for name in (
        *("version", "owner", "agent", "thread_id", "parent_thread_id", "category", "hidden", "title"),
        *("meta", "status", "revision", "created_at", "updated_at", "listed_at"),
    )
]
"""What a list shows of a thread."""

MAX_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    version: str
    revision: int


async def locate(runtime: Runtime, caller: Caller, thread_id: str) -> ThreadPosition | None:
    """The incarnation behind a thread id; None when there is none."""
    if not is_id(thread_id):
        return None
    async with runtime.store.autocommit() as connection:
        row = (await connection.execute(_POSITION, _names(caller, thread_id))).first()
    return None if row is None else ThreadPosition(row.version, row.revision)


async def revisions(runtime: Runtime, versions: Sequence[str]) -> dict[str, int]:
    """The revisions of incarnations; those that are gone are absent."""
    found: dict[str, int] = {}
    async with runtime.store.autocommit() as connection:
        for start in range(0, len(versions), 500):
            chunk = list(versions[start : start + 500])
            rows = await connection.execute(
                select(_THREAD.c.version, _THREAD.c.revision).where(_THREAD.c.version.in_(chunk))
            )
            found |= {row.version: row.revision for row in rows}
    return found


async def get_run(runtime: Runtime, caller: Caller, thread_id: str, run_id: str) -> RunState:
    """Raises NotFound."""
    if not (is_id(thread_id) and is_id(run_id)):
        raise NotFound("run")
    async with runtime.store.autocommit() as connection:
        row = (
            (await connection.execute(_RUN_OF_THREAD, {**_names(caller, thread_id), "run_id": run_id}))
            .mappings()
            .first()
        )
    if row is None:
        raise NotFound("run")
    return records.run_state(Run.of(row), thread_id=thread_id)


async def list_threads(
    runtime: Runtime,
    caller: Caller,
    *,
    parent_thread_id: str | None = None,
    category: str | None = None,
    status: str | None = None,
    page_token: str | None = None,
    limit: int = 20,
    agent: str | None = None,
    hidden: bool | None = None,
) -> ThreadListResult:
    """Latest activity first; pages do not shift when threads are added.

    `agent` (another one) and `hidden` (those only) are for trusted callers. Raises ValidationFailed, Forbidden.
    """
    if not caller.trusted and (agent is not None or hidden is not None):
        raise Forbidden("Only trusted callers list hidden threads, or those of another agent.")
    table = _THREAD.c
    query = select(*_LISTED).where(
        table.owner == caller.owner,
        table.agent == (agent or caller.agent.name),
        table.hidden.is_(bool(hidden)),
    )
    query = _filtered(query, parent_thread_id=parent_thread_id, category=category, status=status)
    return await _page(runtime, query, page_token=page_token, limit=limit, trusted=caller.trusted)


async def list_all_threads(
    runtime: Runtime,
    identity: Identity,
    *,
    owner: str | None = None,
    agent: str | None = None,
    hidden: bool | None = None,
    parent_thread_id: str | None = None,
    category: str | None = None,
    status: str | None = None,
    page_token: str | None = None,
    limit: int = 20,
) -> ThreadListResult:
    """Across owners and agents, for trusted callers; None for either means all of them.

    Raises ValidationFailed, Forbidden.
    """
    if not identity.trusted:
        raise Forbidden("Only trusted callers list the threads of others.")
    query = select(*_LISTED)
    for column, value in ((_THREAD.c.owner, owner), (_THREAD.c.agent, agent)):
        if value is not None:
            query = query.where(column == clean_text(value))
    if hidden is not None:
        query = query.where(_THREAD.c.hidden.is_(hidden))
    query = _filtered(query, parent_thread_id=parent_thread_id, category=category, status=status)
    return await _page(runtime, query, page_token=page_token, limit=limit, trusted=True)


def _filtered(
    query: Select[Any], *, parent_thread_id: str | None, category: str | None, status: str | None
) -> Select[Any]:
    if status is not None and status not in set(ThreadStatus):
        raise ValidationFailed.at("status", f"one of {', '.join(ThreadStatus)}")
    table = _THREAD.c
    for column, value in (
        (table.parent_thread_id, parent_thread_id),
        (table.category, category),
        (table.status, status),
    ):
        if value is not None:
            query = query.where(column == clean_text(value))
    return query


async def _page(
    runtime: Runtime, query: Select[Any], *, page_token: str | None, limit: int, trusted: bool
) -> ThreadListResult:
    table = _THREAD.c
    if not 1 <= limit <= MAX_LIMIT:
        raise ValidationFailed.at("limit", f"from 1 to {MAX_LIMIT}")
    if page_token is not None:
        listed_at, version = _read_token(page_token)
        query = query.where(
            or_(table.listed_at < listed_at, and_(table.listed_at == listed_at, table.version < version))
        )
    query = query.order_by(table.listed_at.desc(), table.version.desc()).limit(limit + 1)
    async with runtime.store.autocommit() as connection:
        threads = [Thread.of(row) for row in (await connection.execute(query)).mappings()]
    more = len(threads) > limit
    threads = threads[:limit]
    return ThreadListResult(
        items=[records.thread_summary(thread, trusted=trusted) for thread in threads],
        next_page_token=_token(threads[-1]) if more else None,
    )


async def rename(
    runtime: Runtime, caller: Caller, thread_id: str, request: RenameRequest, *, key: str | None = None
) -> Reply[ThreadSummary]:
    """A user's title, which no generated one replaces. Raises NotFound, ValidationFailed."""
    title = request.title.strip()
    if not title:
        raise ValidationFailed.at("title", "must not be blank")

    async def decide(tx: ThreadTransaction) -> ThreadSummary:
        record = {"value": title, "source": "user", "updatedAt": iso(tx.now)}
        tx.update(tx.thread, title=record, listed_at=tx.now)
        after = tx.thread.model_copy(update={"revision": tx.revision, "updated_at": tx.now})
        return records.thread_summary(after)

    return await mutate(
        runtime,
        caller,
        thread_id,
        result=ThreadSummary,
        key=key,
        request_hash=receipts.request_hash(f"rename {thread_id}", request.wire()),
        decide=decide,
    )


def _names(caller: Caller, thread_id: str) -> dict[str, Any]:
    return {**caller.names(thread_id), "trusted": caller.trusted}


def _token(thread: Thread) -> str:
    return base64.urlsafe_b64encode(dumps([thread.listed_at, thread.version])).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        listed_at, version = loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error):
        raise ValidationFailed.at("pageToken", "not a token of this list") from None
    if type(listed_at) is not int or abs(listed_at) >= 2**62 or not isinstance(version, str) or not is_id(version):
        raise ValidationFailed.at("pageToken", "not a token of this list")
    return listed_at, version
