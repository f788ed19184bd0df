"""The pace of commits that nobody waits for."""

import asyncio
from datetime import timedelta

from pai_workers.pace import Pace
from support.waiting import wait_until

LONG = timedelta(hours=1)


async def test_commits_go_one_after_the_other_in_the_order_of_asking() -> None:
    pace, entered, gates = Pace(patience=LONG), list[int](), [asyncio.Event() for _ in range(5)]

    async def one(number: int) -> None:
        async with pace.place():
            entered.append(number)
            await gates[number].wait()

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(one(number))
        for number, gate in enumerate(gates):
            await wait_until(lambda: len(entered) > number)  # noqa: B023
            assert entered == list(range(number + 1))
            gate.set()


async def test_one_that_takes_too_long_holds_up_no_others_and_gives_its_place_back_once() -> None:
    pace, stuck, at_it = Pace(patience=timedelta(milliseconds=1)), asyncio.Event(), 0

    async def hangs() -> None:
        async with pace.place():
            await stuck.wait()

    async def counts() -> None:
        nonlocal at_it
        async with pace.place():
            at_it += 1
            assert at_it == 1
            await asyncio.sleep(0)
            at_it -= 1

    async with asyncio.TaskGroup() as group:
        group.create_task(hangs())
        async with pace.place():
            pass
        stuck.set()
    pace.patience = LONG
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(counts())
