"""The database's clock: whole milliseconds, the time of the statement, usable in any expression."""

import time

from rows import STEP, THREAD, step, thread
from sqlalchemy import BigInteger, bindparam, cast, func, insert, select, update

from pai.store.clock import now_ms
from pai.store.store import Store
from support.waiting import wait_until


async def test_the_clock_gives_the_milliseconds_of_now(store: Store) -> None:
    before = time.time_ns() // 1_000_000
    async with store.read() as connection:
        now = (await connection.execute(select(now_ms()))).scalar_one()
    after = time.time_ns() // 1_000_000
    assert isinstance(now, int)
    assert before - 1 <= now <= after + 1


async def test_the_clock_goes_on_within_a_transaction_and_never_back(store: Store) -> None:
    async with store.write() as connection:
        seen = [(await connection.execute(select(now_ms()))).scalar_one()]

        async def later() -> bool:
            seen.append((await connection.execute(select(now_ms()))).scalar_one())
            return bool(seen[-1] >= seen[0] + 5)

        await wait_until(later)
    assert seen == sorted(seen)


async def test_the_clock_resolves_single_milliseconds(store: Store) -> None:
    async with store.autocommit() as connection:
        rests: set[int] = set()

        async def varied() -> bool:
            rests.add((await connection.execute(select(now_ms()))).scalar_one() % 10)
            return len(rests) > 3

        await wait_until(varied)


async def test_the_clock_of_sqlite_is_exact_to_the_millisecond(sqlite_store: Store) -> None:
    same_moment = select(now_ms() % 1000, func.substr(func.strftime("%f", "now"), 4))
    async with sqlite_store.read() as connection:
        for _ in range(100):
            milliseconds, text = (await connection.execute(same_moment)).one()
            assert milliseconds == int(text)


async def test_a_lease_is_written_and_compared_by_the_clock(store: Store) -> None:
    claim = (
        update(STEP)
        .where(STEP.c.step_id == "s", STEP.c.lease_expires_at < now_ms())
        .values(lease_expires_at=now_ms() + cast(bindparam("lease"), BigInteger))
        .returning(STEP.c.lease_expires_at)
    )
    async with store.write() as connection:
        await connection.execute(insert(THREAD), thread("v"))
        await connection.execute(insert(STEP), step("v", "s", lease_expires_at=0))
    async with store.autocommit() as connection:
        expires = (await connection.execute(claim, {"lease": 60_000})).scalar_one()
        assert (await connection.execute(claim, {"lease": 60_000})).first() is None
        now = (await connection.execute(select(now_ms()))).scalar_one()
    assert 0 < expires - now <= 60_000
