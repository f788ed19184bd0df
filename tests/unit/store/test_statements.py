"""Statements that travel together: what they bind, what they return, and what happens when one of them fails."""

import asyncio

import pytest
from rows import RUN, STEP, THREAD, run, step, thread
from sqlalchemy import bindparam, exc, insert, select, text, update

from pai.protocol.errors import Unavailable
from pai.store.inserts import insert_once
from pai.store.statements import compiled
from pai.store.store import Store, execute_all, fetch_all

BUMP = update(THREAD).where(THREAD.c.version == bindparam("v")).values(revision=THREAD.c.revision + 1)
BUMPED = BUMP.returning(THREAD.c.revision)
ROW = select(THREAD).where(THREAD.c.version == bindparam("v"))
LIVE = select(STEP.c.step_id).where(STEP.c.state.in_(["pending", "running"])).order_by(STEP.c.step_id)
ONE_OF = select(THREAD.c.version).where(THREAD.c.version.in_(bindparam("versions", expanding=True)))
INSERT_RUN, INSERT_STEP, INSERT_THREAD = insert(RUN), insert(STEP), insert(THREAD)


async def test_each_statement_sees_what_those_before_it_did(store: Store) -> None:
    async with store.write() as connection:
        answers = await fetch_all(
            connection,
            [(INSERT_THREAD, thread("v")), (BUMPED, {"v": "v"}), (BUMPED, {"v": "v"}), (ROW, {"v": "v"})],
        )
    assert answers[:3] == [[], [{"revision": 1}], [{"revision": 2}]]
    assert answers[3][0]["revision"] == 2


async def test_rows_are_those_of_sqlalchemy(store: Store) -> None:
    given = thread("v", title={"b": "🧑‍🚀", "a": [1.5, None, True]}, hidden=True, parent_thread_id=None)
    async with store.write() as connection:
        await execute_all(connection, [(INSERT_THREAD, given)])
        [[row]] = await fetch_all(connection, [(ROW, {"v": "v"})])
        usual = (await connection.execute(ROW, {"v": "v"})).mappings().one()
    assert row == dict(usual)
    assert row["title"] == given["title"]
    assert list(row["title"]) == ["b", "a"]
    assert row["hidden"] is True


async def test_lists_that_are_part_of_a_statement_are_bound(store: Store) -> None:
    states = ["pending", "running", "done", "suspended"]
    async with store.write() as connection:
        steps = [step("v", f"s-{state}", state=state) for state in states]
        await execute_all(connection, [(INSERT_THREAD, thread("v")), (INSERT_RUN, run("v")), (INSERT_STEP, steps)])
        [rows] = await fetch_all(connection, [(LIVE, None)])
    assert [row["step_id"] for row in rows] == ["s-pending", "s-running"]


@pytest.mark.parametrize("unique", [None, ["owner", "agent", "thread_id"]])
async def test_an_insert_gives_way_to_a_row_that_is_there(store: Store, unique: list[str] | None) -> None:
    once = insert_once(THREAD, store.dialect, unique=unique).returning(THREAD.c.version)
    named = [thread(version) | {"thread_id": "t"} for version in ("v", "w")]
    async with store.write() as connection:
        answers = await fetch_all(connection, [(once, named[0]), (once, named[1]), (ROW, {"v": "w"})])
    assert answers == [[{"version": "v"}], [], []]


async def test_an_insert_gives_way_in_no_other_column(store: Store) -> None:
    once = insert_once(THREAD, store.dialect, unique=["owner", "agent", "thread_id"])
    with pytest.raises(exc.IntegrityError):
        async with store.write() as connection:
            await fetch_all(connection, [(once, thread("v")), (once, thread("v") | {"thread_id": "another"})])


async def test_a_list_as_a_parameter_is_refused(store: Store) -> None:
    async with store.read() as connection:
        with pytest.raises(TypeError, match="unknown length"):
            await fetch_all(connection, [(ONE_OF, {"versions": ["v"]})])


async def test_a_missing_parameter_is_an_error_before_anything_is_sent(store: Store) -> None:
    with pytest.raises(KeyError, match="v"):
        async with store.write() as connection:
            await fetch_all(connection, [(INSERT_THREAD, thread("v")), (BUMP, {})])
    async with store.read() as connection:
        assert await fetch_all(connection, [(ROW, {"v": "v"})]) == [[]]


async def test_nothing_is_asked_for_nothing(store: Store) -> None:
    async with store.read() as connection:
        assert await fetch_all(connection, []) == []


async def test_an_error_is_sqlalchemys_and_undoes_the_transaction(store: Store) -> None:
    for _ in range(8):  # past the point where statements are prepared
        with pytest.raises(exc.IntegrityError):
            async with store.write() as connection:
                await fetch_all(connection, [(INSERT_THREAD, thread("v")), (INSERT_RUN, run("nowhere"))])
    async with store.read() as connection:
        assert await fetch_all(connection, [(ROW, {"v": "v"})]) == [[]]


async def test_outside_of_a_transaction_each_statement_counts(store: Store) -> None:
    async with store.autocommit() as connection:
        await execute_all(connection, [(INSERT_THREAD, thread("v"))])
        assert await fetch_all(connection, [(BUMPED, {"v": "v"})]) == [[{"revision": 1}]]
    async with store.read() as connection:
        [[row]] = await fetch_all(connection, [(ROW, {"v": "v"})])
        assert row["revision"] == 1


async def test_a_cancelled_exchange_leaves_a_usable_store(postgres_store: Store) -> None:
    sleep = text("SELECT pg_sleep(60)")
    asked = asyncio.Event()

    async def work() -> None:
        async with postgres_store.write() as connection:
            await execute_all(connection, [(INSERT_THREAD, thread("v"))])
            asked.set()
            await fetch_all(connection, [(sleep, None)])

    task = asyncio.create_task(work())
    await asked.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with postgres_store.write() as connection:
        assert await fetch_all(connection, [(ROW, {"v": "v"})]) == [[]]


async def test_a_lost_connection_is_unavailable_and_the_next_one_works(postgres_store: Store) -> None:
    end = text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(Unavailable):
        async with postgres_store.write() as connection:
            await fetch_all(connection, [(INSERT_THREAD, thread("v")), (end, None)])
    async with postgres_store.write() as connection:
        assert await fetch_all(connection, [(ROW, {"v": "v"})]) == [[]]


async def test_a_statement_is_compiled_once_for_the_same_parameters(postgres_store: Store) -> None:
    async with postgres_store.write() as connection:
        await execute_all(connection, [(INSERT_THREAD, thread("v"))])
        await fetch_all(connection, [(BUMP, {"v": "v"})])
        before = compiled.cache_info().misses
        await fetch_all(connection, [(BUMP, {"v": "v"}), (BUMP, {"v": "w"})])
        assert compiled.cache_info().misses == before
