"""Whatever an application's function raises comes as an exception that ends a call, never the process."""

import asyncio
from typing import Any

import pytest

from pai.contract import Agent, Rehearsal, Suspended, contained, invoke
from pai.contract.contained import Escaped


class Odd(BaseException):
    pass


RAISED: dict[str, BaseException] = {
    "exit": SystemExit(2),
    "interrupt": KeyboardInterrupt(),
    "own cancellation": asyncio.CancelledError(),
    "generator exit": GeneratorExit(),
    "stop iteration": StopIteration(1),
    "odd": Odd(),
    "group": BaseExceptionGroup("", [Odd(), Suspended()]),
}


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_is_no_exception_becomes_one(error: BaseException, is_async: bool) -> None:
    async def in_loop() -> None:
        raise error

    def in_thread() -> None:
        raise error

    async with asyncio.timeout(5):
        with pytest.raises((Escaped, RuntimeError)) as raised:
            await invoke(in_loop if is_async else in_thread)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("mine"), ExceptionGroup("", [ValueError()]), Suspended()])
async def test_exceptions_and_suspensions_pass(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await invoke(fail)
    assert raised.value is error


async def test_a_group_of_suspensions_is_one() -> None:
    with pytest.raises(Suspended), contained():
        raise BaseExceptionGroup("", [Suspended(), BaseExceptionGroup("", [Suspended()])])


async def test_a_cancellation_from_without_passes() -> None:
    begun = asyncio.Event()

    async def wait() -> Any:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(invoke(wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_around_it_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await invoke(asyncio.sleep, 60)


async def test_a_rehearsal_is_told_what_a_thread_cannot_deliver() -> None:
    agent = Agent("main", model="demo")

    @agent.tool
    def exhausted() -> int:
        """Take one more than there are."""
        return int(next(iter(())))

    async with asyncio.timeout(5):
        with pytest.raises(Escaped):
            await Rehearsal(agent, "exhausted").run({})
