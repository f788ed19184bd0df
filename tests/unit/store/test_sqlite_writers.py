"""SQLite with several processes and tasks: nobody fails because another one writes."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from rows import THREAD, thread
from sqlalchemy import bindparam, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.pool import NullPool

from pai.store.database import sync_engine
from pai.store.errors import Contended
from pai.store.sqlite import SqliteConnection
from pai.store.store import Store, execute_all
from support.waiting import wait_until

BUMP = update(THREAD).where(THREAD.c.version == "v").values(revision=bindparam("seen") + 1)
READ = select(THREAD.c.revision).where(THREAD.c.version == "v")
EACH = 100


async def _write_many(url: str) -> int:
    """Transactions that read before they write, from several tasks, without a retry."""
    async with Store.open(url) as store:

        async def one() -> None:
            for _ in range(EACH // 4):
                async with store.write() as connection:
                    seen = (await connection.execute(READ)).scalar_one()
                    await connection.execute(BUMP, {"seen": seen})
                async with store.read() as connection:
                    assert (await connection.execute(READ)).scalar_one() > seen

        await asyncio.gather(*(one() for _ in range(4)))
    return EACH


def _process(url: str) -> int:
    return asyncio.run(_write_many(url))


async def test_writers_of_several_processes_never_fail_and_lose_nothing(sqlite_store: Store, sqlite_url: str) -> None:
    async with sqlite_store.write() as connection:
        await connection.execute(insert(THREAD), thread("v"))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        loop = asyncio.get_running_loop()
        others = (loop.run_in_executor(pool, _process, sqlite_url) for _ in range(2))
        done = await asyncio.gather(_write_many(sqlite_url), *others)
    async with sqlite_store.read() as connection:
        assert (await connection.execute(READ)).scalar_one() == sum(done)


async def test_a_writer_in_the_way_for_too_long_is_contended(sqlite_url: str) -> None:
    async with Store.open(sqlite_url) as one, Store.open(sqlite_url) as other:
        async with other.autocommit() as connection:
            await connection.execute(text("PRAGMA busy_timeout = 20"))
        async with one.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
            with pytest.raises(Contended):
                await other.run_write(lambda blocked: blocked.execute(insert(THREAD), thread("w")))
        await other.run_write(lambda free: free.execute(insert(THREAD), thread("w")))


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for n in range(10):
        url = f"sqlite:///{tmp_path / str(n)}.db"
        together = threading.Barrier(5)

        def write(url: str = url, together: threading.Barrier = together) -> None:
            together.wait()
            with sync_engine(url, poolclass=NullPool).begin() as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS written (it)"))
                connection.execute(text("INSERT INTO written VALUES (1)"))

        with ThreadPoolExecutor(5) as pool:
            for done in [pool.submit(write) for _ in range(5)]:
                done.result()
        with sync_engine(url, poolclass=NullPool).begin() as connection:
            assert connection.execute(text("SELECT count(*) FROM written")).scalar() == 5


async def test_a_write_that_is_cancelled_while_its_thread_waits_for_the_lock_gives_it_back(sqlite_url: str) -> None:
    async with Store.open(sqlite_url) as one, Store.open(sqlite_url) as other:

        async def blocked() -> None:
            async with other.write() as connection:
                await connection.execute(READ)

        async with other.autocommit() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
        async with one.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
            task = asyncio.create_task(blocked())
            await wait_until(lambda: driver is not None and not driver.is_idle)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with one.autocommit() as connection:
            await connection.execute(text("PRAGMA busy_timeout = 20"))
        await one.run_write(lambda free: free.execute(BUMP, {"seen": 1}))


async def test_readers_do_not_wait_for_a_writer(sqlite_store: Store) -> None:
    async with sqlite_store.write() as writing:
        await writing.execute(insert(THREAD), thread("v"))
        async with sqlite_store.read() as reading:
            assert (await reading.execute(READ)).first() is None


async def test_every_connection_is_set_up(sqlite_store: Store) -> None:
    async def pragmas(connection: AsyncConnection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [(await connection.execute(text(f"PRAGMA {name}"))).scalar() for name in names]

    async with sqlite_store.autocommit() as writer, sqlite_store.read() as reader:
        assert await pragmas(writer) == await pragmas(reader) == ["wal", 1, 1, 15_000]


async def test_a_transaction_crosses_to_the_thread_once_for_each_query_and_once_for_all_writes(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sqlite_store.write() as connection:
        await connection.execute(insert(THREAD), thread("v"))
    crossings: list[str] = []
    original = SqliteConnection._execute

    async def counted(self: SqliteConnection, function: object, *arguments: object, **options: object) -> object:
        crossings.append(getattr(function, "__name__", ""))
        return await original(self, function, *arguments, **options)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(SqliteConnection, "_execute", counted)
    async with sqlite_store.write() as connection:
        await connection.execute(READ)
        await execute_all(connection, [(BUMP, {"seen": 1}), (BUMP, {"seen": 2})])
    assert crossings == ["_run_all", "_run_and_commit"]
