"""What the three kinds of transaction promise, on both databases."""

import asyncio

import pytest
from rows import MESSAGE, RUN, STEP, THREAD, message, run, step, thread
from sqlalchemy import bindparam, delete, exc, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.protocol.errors import Unavailable
from pai.store.errors import Contended
from pai.store.store import Store, execute_all

BUMP = update(THREAD).where(THREAD.c.version == bindparam("v")).values(revision=THREAD.c.revision + 1)


async def revision(store: Store, version: str = "v") -> int | None:
    async with store.read() as connection:
        found = await connection.execute(select(THREAD.c.revision).where(THREAD.c.version == version))
        return found.scalar()


@pytest.fixture
async def store(store: Store) -> Store:
    """With two threads in it."""
    async with store.write() as connection:
        await connection.execute(insert(THREAD), [thread("v"), thread("w")])
    return store


async def test_a_write_is_committed_at_the_end_of_its_block(store: Store) -> None:
    async with store.write() as connection:
        await connection.execute(BUMP, {"v": "v"})
    assert await revision(store) == 1


async def test_a_write_is_rolled_back_when_its_block_raises(store: Store) -> None:
    async def fail(connection: AsyncConnection) -> None:
        await connection.execute(BUMP, {"v": "v"})
        await execute_all(connection, [(BUMP, {"v": "v"})])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.run_write(fail)
    assert await revision(store) == 0
    async with store.write() as connection:
        await connection.execute(BUMP, {"v": "v"})
    assert await revision(store) == 1


async def test_a_cancelled_write_is_rolled_back_and_its_connection_serves_again(store: Store) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with store.write() as connection:
            await connection.execute(BUMP, {"v": "v"})
            entered.set()
            await asyncio.Event().wait()

    for _ in range(30):  # more than the pool holds
        entered.clear()
        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await revision(store) == 0
    await store.run_write(lambda connection: connection.execute(BUMP, {"v": "v"}))
    assert await revision(store) == 1


async def test_a_write_that_is_cancelled_while_it_waits_for_a_lock_holds_none(store: Store) -> None:
    async def work() -> None:
        async with store.write() as connection:
            await connection.execute(BUMP, {"v": "v"})

    async with store.write() as connection:
        await connection.execute(BUMP, {"v": "v"})
        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await work()
    assert await revision(store) == 2


async def test_a_read_sees_one_state_of_the_database(store: Store) -> None:
    async with store.read() as connection:
        before = (await connection.execute(select(THREAD.c.revision).where(THREAD.c.version == "v"))).scalar()
        async with store.write() as writing:
            await writing.execute(BUMP, {"v": "v"})
            await writing.execute(insert(RUN), run("v"))
        after = (await connection.execute(select(THREAD.c.revision).where(THREAD.c.version == "v"))).scalar()
        runs = (await connection.execute(select(func.count()).select_from(RUN))).scalar()
    assert (before, after, runs) == (0, 0, 0)
    assert await revision(store) == 1


async def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(exc.DBAPIError):
        async with store.read() as connection:
            await connection.execute(BUMP, {"v": "v"})
    assert await revision(store) == 0
    async with store.write() as connection:
        await connection.execute(BUMP, {"v": "v"})
    assert await revision(store) == 1


async def test_a_single_statement_is_committed_at_once(store: Store) -> None:
    async with store.autocommit() as connection:
        claimed = await connection.execute(BUMP.returning(THREAD.c.revision), {"v": "v"})
        assert claimed.scalar() == 1
        assert await revision(store) == 1
        await connection.execute(BUMP, {"v": "v"})
        assert await revision(store) == 2


async def test_statements_of_autocommit_stay_when_a_later_one_fails(store: Store) -> None:
    async with store.autocommit() as connection:
        await connection.execute(BUMP, {"v": "v"})
        with pytest.raises(exc.IntegrityError):
            await connection.execute(insert(THREAD), thread("v"))
    assert await revision(store) == 1


async def test_the_kinds_of_transaction_leave_nothing_behind_for_one_another(store: Store) -> None:
    for _ in range(3):
        async with store.read() as connection:
            await connection.execute(select(THREAD))
        async with store.autocommit() as connection:
            await connection.execute(BUMP, {"v": "v"})
        async with store.write() as connection:
            await connection.execute(BUMP, {"v": "v"})
    assert await revision(store) == 6


async def test_a_violated_constraint_reaches_the_caller_as_it_is(store: Store) -> None:
    async def insert_twice(connection: AsyncConnection) -> None:
        await connection.execute(BUMP, {"v": "v"})
        await connection.execute(insert(THREAD), thread("v"))

    with pytest.raises(exc.IntegrityError):
        await store.run_write(insert_twice)
    assert await revision(store) == 0


async def test_a_savepoint_undoes_only_what_came_after_it(store: Store) -> None:
    async with store.write() as connection:
        await connection.execute(BUMP, {"v": "v"})
        savepoint = await connection.begin_nested()
        await connection.execute(BUMP, {"v": "v"})
        with pytest.raises(exc.IntegrityError):
            await connection.execute(insert(THREAD), thread("v"))
        await savepoint.rollback()
        await execute_all(connection, [(BUMP, {"v": "w"})])
    assert (await revision(store, "v"), await revision(store, "w")) == (1, 1)


async def test_deleting_a_thread_deletes_all_that_is_its_own(store: Store) -> None:
    async with store.write() as connection:
        for version in ("v", "w"):
            await connection.execute(insert(RUN), run(version, f"run-{version}"))
            await connection.execute(insert(MESSAGE), message(version))
            await connection.execute(insert(STEP), step(version, f"step-{version}"))
        await connection.execute(delete(THREAD).where(THREAD.c.version == "v"))
    async with store.read() as connection:
        for table in (RUN, MESSAGE, STEP):
            assert (await connection.execute(select(table.c.version))).scalars().all() == ["w"]


async def test_a_row_of_a_thread_that_does_not_exist_is_refused(store: Store) -> None:
    with pytest.raises(exc.IntegrityError):
        async with store.write() as connection:
            await connection.execute(insert(RUN), run("nowhere"))


async def test_transactions_that_lock_the_same_thread_take_turns(store: Store) -> None:
    lock = select(THREAD.c.revision).where(THREAD.c.version == "v").with_for_update()

    async def work(connection: AsyncConnection) -> int:
        seen: int = (await connection.execute(lock)).scalar_one()
        await connection.execute(select(func.count()).select_from(RUN))
        await execute_all(connection, [(update(THREAD).where(THREAD.c.version == "v").values(revision=seen + 1), None)])
        return seen

    seen = await asyncio.gather(*(store.run_write(work) for _ in range(40)))
    assert sorted(seen) == list(range(40))
    assert await revision(store) == 40


async def test_work_is_done_again_when_another_transaction_was_in_the_way(store: Store) -> None:
    attempts = 0

    async def work(connection: AsyncConnection) -> str:
        nonlocal attempts
        attempts += 1
        await connection.execute(BUMP, {"v": "v"})
        if attempts < 4:
            raise Contended
        return "done"

    assert await store.run_write(work) == "done"
    assert (attempts, await revision(store)) == (4, 1)


async def test_work_is_not_done_a_fifth_time(store: Store) -> None:
    attempts = 0

    async def work(connection: AsyncConnection) -> None:
        nonlocal attempts
        attempts += 1
        raise Contended

    with pytest.raises(Unavailable):
        await store.run_write(work)
    assert attempts == 4


async def test_two_transactions_that_lock_each_others_rows_both_succeed(postgres_store: Store) -> None:
    async with postgres_store.write() as connection:
        await connection.execute(insert(THREAD), [thread("v"), thread("w")])
    both_hold_one = asyncio.Barrier(2)
    attempts: list[str] = []

    async def work(connection: AsyncConnection, first: str, second: str) -> None:
        await connection.execute(BUMP, {"v": first})
        attempts.append(first)
        if len(attempts) <= 2:
            await both_hold_one.wait()
        await connection.execute(BUMP, {"v": second})

    await asyncio.gather(
        postgres_store.run_write(lambda connection: work(connection, "v", "w")),
        postgres_store.run_write(lambda connection: work(connection, "w", "v")),
    )
    assert len(attempts) == 3
    assert (await revision(postgres_store, "v"), await revision(postgres_store, "w")) == (2, 2)


async def test_a_failed_statement_that_was_swallowed_is_not_reported_as_committed(postgres_store: Store) -> None:
    async def swallow(connection: AsyncConnection) -> None:
        await connection.execute(insert(THREAD), thread("x"))
        with pytest.raises(exc.IntegrityError):
            await connection.execute(insert(THREAD), thread("x"))

    with pytest.raises(exc.DBAPIError, match="cannot be committed"):
        await postgres_store.run_write(swallow)
    assert await revision(postgres_store, "x") is None


async def test_more_transactions_than_connections_wait_for_their_turn(any_database_url: str) -> None:
    async with Store.open(any_database_url, pool_size=1, max_overflow=1) as small:
        async with small.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
        bumps = (small.run_write(lambda connection: connection.execute(BUMP, {"v": "v"})) for _ in range(20))
        await asyncio.gather(*bumps)
        assert await revision(small) == 20
