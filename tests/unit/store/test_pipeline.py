"""PostgreSQL: what needs no answer travels with what does, and nothing else changes for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from rows import RUN, STEP, THREAD, run, step, thread
from sqlalchemy import bindparam, exc, func, insert, make_url, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.protocol.errors import Unavailable
from pai.store.store import Store, execute_all
from support.proxy import Proxy
from support.waiting import wait_until

BUMP = update(THREAD).where(THREAD.c.version == bindparam("v")).values(revision=THREAD.c.revision + 1)
REVISION = select(THREAD.c.revision).where(THREAD.c.version == bindparam("v"))
BIG = "x" * 200_000


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    url = make_url(postgres_url)
    async with Proxy.to(url.host or "127.0.0.1", url.port or 5432) as proxy:
        yield proxy


@pytest.fixture
async def store(postgres_url: str, proxy: Proxy) -> AsyncIterator[Store]:
    """One connection through the proxy, warm, with a thread in the database."""
    url = make_url(postgres_url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    async with Store.open(url, pool_size=1, max_overflow=0) as store:
        async with store.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
        yield store


async def revision(store: Store) -> int:
    async with store.autocommit() as connection:
        found: int = (await connection.execute(REVISION, {"v": "v"})).scalar_one()
        return found


async def test_a_transaction_costs_a_round_trip_for_each_query_and_one_for_all_writes(
    store: Store, proxy: Proxy
) -> None:
    before = proxy.requests
    async with store.write() as connection:
        await connection.execute(REVISION.with_for_update(), {"v": "v"})
        await connection.execute(select(RUN))
        steps = [step("v", f"s{n}") for n in range(3)]
        await execute_all(connection, [(BUMP, {"v": "v"}), (insert(RUN), run("v")), (insert(STEP), steps)])
    assert proxy.requests - before == 3
    async with store.read() as connection:
        assert (await connection.execute(REVISION, {"v": "v"})).scalar() == 1
        assert (await connection.execute(select(func.count()).select_from(STEP))).scalar() == 3


async def test_a_transaction_of_writes_only_is_one_round_trip(store: Store, proxy: Proxy) -> None:
    complaints: list[str | None] = []
    async with store.autocommit() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        driver.add_notice_handler(lambda notice: complaints.append(notice.message_primary))
    before = proxy.requests
    async with store.write() as connection:
        await execute_all(connection, [(BUMP, {"v": "v"}), (BUMP, {"v": "v"})])
    assert proxy.requests - before == 1
    assert await revision(store) == 2
    assert complaints == []


async def test_a_single_statement_is_one_round_trip(store: Store, proxy: Proxy) -> None:
    before = proxy.requests
    async with store.autocommit() as connection:
        await connection.execute(BUMP, {"v": "v"})
    assert proxy.requests - before == 1


async def test_a_block_without_statements_sends_nothing(store: Store, proxy: Proxy) -> None:
    before = proxy.requests
    for block in (store.write, store.read, store.autocommit):
        async with block():
            pass
    assert proxy.requests == before


async def test_statements_are_prepared_and_stay_right_over_many_transactions(store: Store) -> None:
    for n in range(12):
        async with store.write() as connection:
            assert (await connection.execute(REVISION, {"v": "v"})).scalar() == 2 * n
            await execute_all(connection, [(BUMP, {"v": "v"}), (BUMP, {"v": "v"})])
    async with store.autocommit() as connection:
        prepared = (await connection.execute(text("SELECT statement FROM pg_prepared_statements"))).scalars().all()
    assert any("UPDATE thread" in statement for statement in prepared)


async def test_a_rollback_leaves_statements_prepared(store: Store) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await connection.execute(REVISION, {"v": "v"})
        await connection.execute(BUMP, {"v": "v"})
        raise ZeroDivisionError

    for _ in range(8):
        with pytest.raises(ZeroDivisionError):
            await store.run_write(fail)
    async with store.autocommit() as connection:
        prepared = (await connection.execute(text("SELECT statement FROM pg_prepared_statements"))).scalars().all()
    assert any("UPDATE thread" in statement for statement in prepared)
    assert await revision(store) == 0


async def test_statements_without_end_do_not_fill_the_memory_of_a_connection(store: Store) -> None:
    async with store.autocommit() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        driver.prepared_max = 5
    for n in range(30):
        async with store.write() as connection:
            statements = [(text(f"UPDATE thread SET revision = {n * 10 + m}"), None) for m in range(3)]
            await execute_all(connection, statements * 7)
            await connection.execute(text(f"SELECT {n}"))
    assert len(driver._prepared._counts) <= 8
    assert len(driver._prepared._names) <= 8
    assert await revision(store) == 292


async def test_a_statement_that_cannot_be_prepared_fails_with_its_own_error(store: Store) -> None:
    async with store.autocommit() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        driver.prepare_threshold = 0
    wrong = [(BUMP, {"v": "v"}), (text("UPDATE nothing SET a = 1"), None), (insert(RUN), run("v"))]
    for _ in range(3):
        with pytest.raises(exc.ProgrammingError, match="nothing"):
            await store.run_write(lambda connection: execute_all(connection, wrong))
    await store.run_write(lambda connection: execute_all(connection, [(BUMP, {"v": "v"}), (insert(RUN), run("v"))]))
    assert await revision(store) == 1


async def test_a_statement_after_writes_that_were_put_off_sees_them(store: Store) -> None:
    async with store.write() as connection:
        await execute_all(connection, [(BUMP, {"v": "v"})])
        assert (await connection.execute(REVISION, {"v": "v"})).scalar() == 1


async def test_an_error_among_writes_that_were_put_off_undoes_them_all(store: Store) -> None:
    async def work(connection: AsyncConnection) -> None:
        writes = [(BUMP, {"v": "v"}), (insert(RUN), run("nowhere")), (BUMP, {"v": "v"})]
        await execute_all(connection, writes)

    for _ in range(8):  # past the point where statements are prepared
        with pytest.raises(exc.IntegrityError, match="run_version_fkey"):
            await store.run_write(work)
        assert await revision(store) == 0
    async with store.write() as connection:
        await execute_all(connection, [(BUMP, {"v": "v"})])
    assert await revision(store) == 1


async def test_an_error_of_the_first_statement_leaves_a_usable_connection(store: Store) -> None:
    for _ in range(8):
        with pytest.raises(exc.IntegrityError):
            await store.run_write(lambda connection: connection.execute(insert(RUN), run("nowhere")))
    assert await revision(store) == 0


async def test_a_failed_statement_can_be_undone_to_a_savepoint_with_writes_put_off(store: Store) -> None:
    async with store.write() as connection:
        await execute_all(connection, [(BUMP, {"v": "v"})])
        savepoint = await connection.begin_nested()
        await execute_all(connection, [(BUMP, {"v": "v"}), (insert(RUN), run("nowhere"))])
        with pytest.raises(exc.IntegrityError):
            await connection.execute(REVISION, {"v": "v"})
        await savepoint.rollback()
        assert (await connection.execute(REVISION, {"v": "v"})).scalar() == 1
        await execute_all(connection, [(BUMP, {"v": "v"})])
    assert await revision(store) == 2


async def test_megabytes_of_writes_and_answers_do_not_block_each_other(store: Store) -> None:
    async with store.write() as connection:
        writes = [(insert(RUN), run("v", f"r{n}", meta={"text": BIG})) for n in range(40)]
        await execute_all(connection, writes)
        rows = (await connection.execute(select(RUN.c.meta))).scalars().all()
        assert [len(meta["text"]) for meta in rows] == [len(BIG)] * 40
    async with store.read() as connection:
        assert len((await connection.execute(select(RUN.c.meta))).all()) == 40


async def test_a_statement_that_cannot_be_sent_leaves_a_usable_store(store: Store) -> None:
    many = tuple(range(70_000))  # more parameters than the protocol can count
    too_long = f"SELECT {','.join(['%s'] * len(many))}"
    with pytest.raises(Unavailable):
        await store.run_write(lambda connection: connection.exec_driver_sql(too_long, many))
    assert await revision(store) == 0


async def test_many_rows_in_one_statement_report_how_many_there_were(store: Store) -> None:
    async with store.write() as connection:
        result = await connection.execute(BUMP, [{"v": "v"}, {"v": "nowhere"}, {"v": "v"}])
        assert result.rowcount == 2
    assert await revision(store) == 2


async def test_a_transaction_cancelled_in_a_round_trip_leaves_a_usable_store(store: Store) -> None:
    sent = asyncio.Event()

    async def work() -> None:
        async with store.write() as connection:
            await execute_all(connection, [(BUMP, {"v": "v"})])
            sent.set()
            await connection.execute(select(func.pg_sleep(60)))

    task = asyncio.create_task(work())
    await sent.wait()
    await asyncio.sleep(0.05)  # into the round trip
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await revision(store) == 0


async def test_a_commit_whose_wait_is_cancelled_happened_or_did_not(store: Store, proxy: Proxy) -> None:
    ready = asyncio.Event()

    async def work() -> None:
        async with store.write() as connection:
            await connection.execute(BUMP, {"v": "v"})
            proxy.stall()
            ready.set()

    task = asyncio.create_task(work())
    await ready.wait()
    await asyncio.sleep(0)
    task.cancel()
    proxy.resume()
    await asyncio.wait([task])
    assert task.cancelled()
    before = await revision(store)
    assert before in (0, 1)
    await store.run_write(lambda connection: connection.execute(BUMP, {"v": "v"}))
    assert await wait_until(lambda: revision(store)) == before + 1
