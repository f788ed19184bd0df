"""Giving up a call gives up the request: a provider that nobody listens to must not go on writing."""

import asyncio
from datetime import timedelta
from typing import Any

from support.fake_providers import Reply
from support.model_calls import request
from support.provider_answers import Answer, Text
from support.waiting import wait_until

TWO_SECONDS = timedelta(seconds=2)


def endless() -> Reply:
    """An answer that stops in the middle and never goes on."""
    return Reply(answer=Answer(items=[Text([f"{number} " for number in range(20)])]), gate=asyncio.Event(), gate_at=10)


async def test_cancelling_the_task_closes_the_connection(connect: Any, provider: str) -> None:
    async with connect(provider, endless()) as (fake, model):
        seen: list[Any] = []

        async def consume() -> None:
            async with model.stream(request()) as stream:
                seen.append(await anext(stream))
                async for _ in stream:
                    pass

        task = asyncio.create_task(consume())
        await wait_until(lambda: seen)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await wait_until(lambda: fake.closed == 1, timeout=TWO_SECONDS)


async def test_cancelling_before_the_first_byte_closes_the_connection(connect: Any, provider: str) -> None:
    silent = Reply(answer=Answer(items=[Text(["x"])]), gate=asyncio.Event(), gate_at=-1)
    async with connect(provider, silent) as (fake, model):

        async def consume() -> None:
            async with model.stream(request()) as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(consume())
        await wait_until(lambda: fake.requests)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await wait_until(lambda: fake.closed == 1, timeout=TWO_SECONDS)


async def test_leaving_the_stream_early_closes_the_connection(connect: Any, provider: str) -> None:
    async with connect(provider, endless()) as (fake, model):
        async with model.stream(request()) as stream:
            async for _ in stream:
                break
        await wait_until(lambda: fake.closed == 1, timeout=TWO_SECONDS)


async def test_a_stream_that_nobody_reads_asks_nothing(connect: Any, provider: str) -> None:
    async with connect(provider, endless()) as (fake, model):
        async with model.stream(request()):
            pass
        assert fake.requests == []
