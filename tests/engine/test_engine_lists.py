"""Long lists of threads: pages in which nothing is missing or repeated, read from indexes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import AsyncConnection

from pai import Agent, Identity, Registry
from pai.engine import api
from pai.engine.runtime import Caller, Runtime
from pai.log.connection import connect
from pai.log.event_log import EventLog
from pai.settings import Settings
from pai.store.store import Store


@pytest.fixture
async def runtime(store: Store, any_database_url: str, redis_url: str) -> AsyncIterator[Runtime]:
    redis = connect(redis_url)
    settings = Settings(database_url=any_database_url, redis_url=redis_url)
    yield Runtime(settings=settings, registry=Registry(Agent("main", model="demo")), store=store, log=EventLog(redis))
    await redis.aclose()


def ann(runtime: Runtime) -> Caller:
    return Caller(Identity(subject="ann"), runtime.registry.get("main"))


async def test_pages_of_a_thousand_threads_of_the_same_moment_hold_each_id_once(runtime: Runtime) -> None:
    await _insert_threads(runtime, 1000, listed_at="1")
    for limit in (100, 7):
        seen: list[str] = []
        token: str | None = None
        while True:
            page = await api.list_threads(runtime, ann(runtime), page_token=token, limit=limit)
            seen += [item.thread_id for item in page.items]
            if (token := page.next_page_token) is None:
                break
        assert len(seen) == len(set(seen)) == 1000


async def _execute(runtime: Runtime, statement: str) -> None:
    async with runtime.store.write() as connection:
        await connection.execute(sql(statement))


async def _insert_threads(runtime: Runtime, count: int, *, listed_at: str, owner: str = "default/ann") -> None:
    numbers = (
        f"SELECT value FROM generate_series(1, {count}) AS value"
        if runtime.store.dialect == "postgresql"
        else f"WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {count}) "
        "SELECT value FROM n"
    )
    columns = {
        "version": f"'th_{owner[-3:]}_' || value",
        "owner": f"'{owner}'",
        "agent": "'main'",
        "thread_id": "'t' || value",
        "parent_thread_id": "CASE WHEN value % 100 = 0 THEN 'p' END",
        "category": "CASE WHEN value % 100 = 1 THEN 'c' END",
        "depth": "0",
        "hidden": "value < 0",
        "meta": "'{}'",
        "private_meta": "'{}'",
        "status": "'idle'",
        "queued": "0",
        "actions": "'[]'",
        "revision": "1",
        "log_epoch": "1",
        "next_position": "0",
        "next_step": "1",
        "usage": "'{}'",
        "created_at": "value",
        "updated_at": "value",
        "listed_at": listed_at,
    }
    json = {"meta", "private_meta", "actions", "usage"}
    values = [
        f"CAST({value} AS json)" if name in json and runtime.store.dialect == "postgresql" else value
        for name, value in columns.items()
    ]
    await _execute(
        runtime, f"INSERT INTO thread ({', '.join(columns)}) SELECT {', '.join(values)} FROM ({numbers}) AS n"
    )


INDEXES: list[tuple[dict[str, str], str]] = [
    ({}, "ix_thread_list"),
    ({"category": "c"}, "ix_thread_list_category"),
    ({"parent_thread_id": "p"}, "ix_thread_list_parent"),
]


@pytest.mark.parametrize("any_database_url", ["postgresql"], indirect=True)
async def test_a_page_of_ten_thousand_threads_is_read_from_an_index(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _insert_threads(runtime, 10_000, listed_at="value % 5000")
    await _insert_threads(runtime, 10_000, listed_at="value % 5000", owner="default/bob")
    await _execute(runtime, "ANALYZE thread")
    for filters, index in INDEXES:
        page = await api.list_threads(runtime, ann(runtime), **filters, limit=20)  # type: ignore[arg-type]
        for token in (None, page.next_page_token):
            plan = await _plan(runtime, monkeypatch, page_token=token, **filters)
            assert f"using {index} " in plan, plan
            assert "Seq Scan" not in plan
            assert "Sort" not in plan, plan


async def _plan(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """What PostgreSQL does for this list."""
    asked: list[Any] = []
    real = AsyncConnection.execute

    async def execute(self: AsyncConnection, statement: Any, *args: Any, **more: Any) -> Any:
        asked.append(statement)
        return await real(self, statement, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncConnection, "execute", execute)
        await api.list_threads(runtime, ann(runtime), limit=20, **options)
    [query] = asked
    async with runtime.store.read() as connection:
        compiled = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        rows = await connection.execute(sql("EXPLAIN " + str(compiled).replace(":", "\\:")))
        return "\n".join(row[0] for row in rows)
