"""Signals reach every process that listens, and survive the loss of a connection."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from redis.asyncio import Redis
from redis_proxy import proxy_to

from pai.log.connection import connect
from pai.log.keys import SIGNALS_CHANNEL
from pai.log.signals import Signals
from pai.protocol.ids import new_id
from support.waiting import wait_until


async def test_a_stop_reaches_every_listener(redis: "Redis") -> None:
    signals, step = Signals(redis), new_id("step")
    heard: list[list[tuple[str, int]]] = [[], [], []]

    def on_stop(index: int, step_id: str, attempt: int) -> None:
        if step_id.startswith(step):
            heard[index].append((step_id, attempt))

    async with AsyncExitStack() as stack:
        for index in range(3):
            listening = signals.listen(lambda step_id, attempt, index=index: on_stop(index, step_id, attempt))
            await stack.enter_async_context(listening)
        await _announce(redis, step, lambda: all(heard))
        await signals.publish_stop([(step, 2), (step + "b", 7)])
        await signals.publish_stop([])
        await wait_until(lambda: [one[-2:] for one in heard] == [[(step, 2), (step + "b", 7)]] * 3, saw=lambda: heard)


async def test_what_is_no_signal_is_ignored(redis: "Redis") -> None:
    signals, step, heard = Signals(redis), new_id("step"), []
    async with signals.listen(lambda step_id, attempt: heard.append(step_id)):
        await _announce(redis, "warm-up", lambda: "warm-up" in heard)
        for data in (b"\xff", b"[]", b'{"stop":[1]}', b'{"stop":[["a","b"]]}', b'{"other":1}', b"null"):
            await redis.publish(SIGNALS_CHANNEL, data)
        await signals.publish_stop([(step, 1)])
        await wait_until(lambda: step in heard)


async def test_a_listener_that_fails_is_called_again(redis: "Redis") -> None:
    signals, step, heard = Signals(redis), new_id("step"), []

    def on_stop(step_id: str, attempt: int) -> None:
        if step_id == step:
            heard.append(attempt)
            raise RuntimeError("a bug")

    async with signals.listen(on_stop):
        await _announce(redis, step, lambda: 0 in heard)
        for attempt in (1, 2):
            await signals.publish_stop([(step, attempt)])
        await wait_until(lambda: heard[-2:] == [1, 2])


async def test_a_listener_hears_again_after_a_lost_connection(redis_url: str) -> None:
    proxy, redis, step, heard = proxy_to(redis_url), connect(redis_url), new_id("step"), []
    async with proxy.running():
        through = connect(redis_url.replace(proxy.target, f"127.0.0.1:{proxy.port}"))
        async with Signals(through).listen(lambda step_id, attempt: heard.append((step_id, attempt))):
            await _announce(redis, step, lambda: bool(heard))
            proxy.cut()
            await _announce(redis, step + "b", lambda: (step + "b", 0) in heard)
        await through.aclose()
    await redis.aclose()


async def _announce(redis: "Redis", step: str, heard: Callable[[], bool]) -> None:
    """Sends a signal until the listeners are there. Others may listen on the same server, so counting does not help."""

    async def sent() -> bool:
        await Signals(redis).publish_stop([(step, 0)])
        await asyncio.sleep(0)
        return heard()

    await wait_until(sent)
