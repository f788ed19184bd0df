"""The supervised connection says when a subscription is in force, and only then."""

import asyncio

from redis.asyncio import Redis
from redis_proxy import proxy_to

from pai.log.connection import connect
from pai.log.listener import Listener
from pai.protocol.ids import new_id
from support.waiting import wait_until


async def test_a_subscription_is_confirmed_once_however_often_it_was_changed_before(redis: "Redis") -> None:
    channel, subscribed, messages = new_id("ch").encode(), list[bytes](), list[bytes]()
    listener = Listener(
        redis,
        on_message=lambda _, data: messages.append(data),
        on_subscribed=lambda channel, _: subscribed.append(channel),
    )
    async with listener:
        await wait_until(lambda: listener.connected)
        listener.subscribe(channel)
        listener.unsubscribe(channel)
        listener.subscribe(channel)
        await wait_until(lambda: subscribed)
        await redis.publish(channel, b"a")
        await wait_until(lambda: messages)
        listener.unsubscribe(channel)
        listener.subscribe(b"other")
        await wait_until(lambda: b"other" in subscribed)
        await redis.publish(channel, b"b")
        await redis.publish("other", b"c")
        await wait_until(lambda: b"c" in messages)
    assert (subscribed, messages) == ([channel, b"other"], [b"a", b"c"])


async def test_every_subscription_is_in_force_again_after_a_reconnect(redis_url: str) -> None:
    proxy, subscribed = proxy_to(redis_url), list[tuple[bytes, bool]]()
    channels = [new_id("ch").encode() for _ in range(3)]
    async with proxy.running():
        redis = connect(redis_url.replace(proxy.target, f"127.0.0.1:{proxy.port}"))
        listener = Listener(
            redis, on_message=lambda *_: None, on_subscribed=lambda *confirmed: subscribed.append(confirmed)
        )
        async with listener:
            for channel in channels:
                listener.subscribe(channel)
            await wait_until(lambda: len(subscribed) == 3)
            proxy.cut()
            await wait_until(lambda: len(subscribed) == 6)
        await redis.aclose()
    assert subscribed == [(channel, False) for channel in channels] * 2


async def test_leaving_ends_it_at_once_whatever_it_does(redis: "Redis") -> None:
    for _ in range(20):
        async with Listener(redis, on_message=lambda *_: None, on_subscribed=lambda *_: None) as listener:
            listener.subscribe(b"a")
            await asyncio.sleep(0)
