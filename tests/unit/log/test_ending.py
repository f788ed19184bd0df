"""A background task that is told to end does end."""

import asyncio

from pai.log.ending import end


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(swallowed) == 2:
                    raise
                swallowed.append("")

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end(task, None)
    assert task.cancelled()
    assert len(swallowed) == 2


async def test_what_an_ended_task_raised_is_nobodys_problem() -> None:
    async def failing() -> None:
        raise RuntimeError("a bug")

    task = asyncio.create_task(failing())
    await end(task)
    assert task.done()
    await end()
