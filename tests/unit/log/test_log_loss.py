"""Redis is disposable: whatever it loses, and whenever, no sequence names two events and every watcher ends right."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from log_parts import AT_ONCE, NEVER, Step, Thread, following, text
from redis.asyncio import Redis
from redis_proxy import proxy_to

from pai.log.batches import PublishStatus
from pai.log.connection import connect
from pai.log.embedded import EmbeddedRedis
from pai.log.entries import ResetReason
from pai.log.errors import LogUnavailable
from pai.log.event_log import EventLog
from pai.log.hub import Hub
from pai.log.keys import live_channel
from pai.log.publisher import Publisher
from support.waiting import wait_until

Call = Callable[[Thread, Step], Awaitable[object]]


async def _transact(thread: Thread, step: Step) -> None:
    await thread.transact()


async def _write(thread: Thread, step: Step) -> None:
    step.write("x", "y")
    await step.channel.flush()


async def _fence(thread: Thread, step: Step) -> None:
    result = await thread.log.fence(thread.version, epoch=thread.epoch, fences={99: 2})
    assert result.status in (PublishStatus.PUBLISHED, PublishStatus.LOST)


async def _trim(thread: Thread, step: Step) -> None:
    await thread.log.trim(thread.version, below=thread.stored)


CALLS: list[Call] = [_write, _transact, _write, _fence, _write, _write, _transact, _trim, _transact, _write]


async def _announced(redis: "Redis", version: str, found: list[int], ready: asyncio.Event) -> None:
    """Every sequence that was ever announced."""
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(live_channel(version))
        async for message in pubsub.listen():
            ready.set()
            if message["type"] == "message":
                first, *lines = message["data"].split(b"\n")
                found += range(int(first), int(first) + len(lines))


@pytest.mark.parametrize("twice", [False, True], ids=["once", "before-every-later-call-too"])
async def test_a_flush_between_any_two_calls_reuses_no_sequence_and_watchers_end_equal_to_the_snapshot(
    redis: "Redis", log: EventLog, twice: bool
) -> None:
    for position in range(len(CALLS) + 1):
        await _flushed_at(position, redis, log, twice=twice)


async def _flushed_at(position: int, redis: "Redis", log: EventLog, *, twice: bool) -> None:
    thread, sequences, ready = Thread(log), list[int](), asyncio.Event()
    async with (
        Hub(log, revisions=thread.revisions, check_every=NEVER, check_grace=AT_ONCE) as hub,
        Publisher(log) as publisher,
    ):
        spy = asyncio.create_task(_announced(redis, thread.version, sequences, ready))
        await ready.wait()
        await thread.create()
        step = Step(thread, publisher)
        async with following(hub, thread) as watcher, following(hub, thread) as other:
            for index, call in enumerate(CALLS):
                if index == position or (twice and index > position):
                    await redis.flushdb()
                await call(thread, step)
            if position == len(CALLS):
                await redis.flushdb()
            await hub.check()
            await wait_until(
                lambda: watcher.deltas == step.written == other.deltas and watcher.revision == thread.revision,
                saw=lambda: (position, vars(watcher), thread, step.written),
            )
            assert watcher.gaps == []
            assert bool(watcher.resets) == (position < len(CALLS))
        spy.cancel()
        await asyncio.gather(spy, return_exceptions=True)
    assert len(sequences) == len(set(sequences))
    assert sequences == sorted(sequences)


async def test_a_hub_that_loses_its_connection_catches_up(redis_url: str) -> None:
    proxy = proxy_to(redis_url)
    redis = connect(redis_url)
    thread = Thread(EventLog(redis))
    await thread.create()
    async with proxy.running(), Publisher(thread.log) as publisher:
        through = connect(redis_url.replace(proxy.target, f"127.0.0.1:{proxy.port}"))
        async with (
            Hub(EventLog(through), revisions=thread.revisions, check_every=NEVER) as hub,
            following(hub, thread) as watcher,
        ):
            step = Step(thread, publisher)
            for round_ in range(5):
                step.write(f"{round_}a")
                await step.channel.flush()
                proxy.cut()
                step.write(f"{round_}b")
                await step.channel.flush()
                await wait_until(lambda: watcher.deltas == step.written)
            assert (watcher.gaps, watcher.resets) == ([], [])
        await through.aclose()
    await redis.aclose()


async def test_a_connection_that_went_silent_is_noticed(redis_url: str) -> None:
    proxy = proxy_to(redis_url)
    redis = connect(redis_url)
    thread = Thread(EventLog(redis))
    await thread.create()
    async with proxy.running():
        through = connect(redis_url.replace(proxy.target, f"127.0.0.1:{proxy.port}"))
        hub = Hub(
            EventLog(through),
            revisions=thread.revisions,
            check_every=NEVER,
            ping_after=timedelta(milliseconds=50),
        )
        async with hub, following(hub, thread) as watcher:
            await through.connection_pool.disconnect()
            proxy.mute()
            await thread.transact(text("a"))
            await wait_until(lambda: watcher.deltas == ["a"])
            assert watcher.resets == []
        await through.aclose()
    await redis.aclose()


async def test_a_restart_of_the_server_in_mid_answer_loses_nothing(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    with server:
        redis = connect(server.url(1))
        thread = Thread(EventLog(redis))
        await thread.create()
        async with (
            Hub(thread.log, revisions=thread.revisions, check_every=NEVER) as hub,
            Publisher(thread.log) as publisher,
            following(hub, thread) as watcher,
            hub.watch_heads("owner", "main") as heads,
        ):
            step = Step(thread, publisher)
            step.write("a")
            await step.channel.flush()
            await wait_until(lambda: watcher.deltas == ["a"])

            server.__exit__(None, None, None)
            step.write("b")
            with pytest.raises(LogUnavailable):
                await thread.transact()
            step.write("c")
            server.__enter__()
            step.write("d")
            await step.channel.flush()
            await thread.transact()
            await wait_until(lambda: watcher.deltas == ["a", "b", "c", "d"] and watcher.revision == thread.revision)
            assert watcher.gaps == []
            assert watcher.resets
            await wait_until(lambda: hub.connected)
            assert [repr(item) for item in await anext(heads)] == ["MISSED"]
            await thread.log.publish_head("owner", "main", b"1")
            assert await anext(heads) == [b"1"]
        await redis.aclose()


async def test_another_server_is_not_trusted_to_continue(tmp_path: Path) -> None:
    """It may have been restored from an older state, under the same epoch and with other entries."""
    server = EmbeddedRedis(tmp_path)
    with server:
        redis = connect(server.url(1))
        thread = Thread(EventLog(redis))
        await thread.create()
        kept = {key: await redis.dump(key) for key in await redis.keys("*")}
        async with (
            Hub(thread.log, revisions=thread.revisions, check_every=NEVER) as hub,
            following(hub, thread) as watcher,
        ):
            await thread.transact(text("a"))
            await wait_until(lambda: watcher.deltas == ["a"])
            server.__exit__(None, None, None)
            server.__enter__()
            await redis.connection_pool.disconnect()
            for key, value in kept.items():
                await redis.restore(key, 0, value)
            thread.revision = 1
            await thread.transact(text("b"))
            await wait_until(lambda: watcher.deltas == ["b"])
            assert set(watcher.resets) & {ResetReason.RESTART, ResetReason.LOST}
        await redis.aclose()


async def test_while_the_server_is_away_watchers_follow_sql(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    with server:
        redis = connect(server.url(1))
        thread = Thread(EventLog(redis))
        await thread.create()
        async with (
            Hub(
                thread.log,
                revisions=thread.revisions,
                check_every=NEVER,
                check_grace=AT_ONCE,
                attach_patience=timedelta(milliseconds=100),
            ) as hub,
            hub.watch(thread.version, thread_id="t") as subscription,
        ):
            server.__exit__(None, None, None)
            await wait_until(lambda: not hub.connected)
            thread.commit()
            await hub.check()
            [frame] = await anext(subscription)
            assert frame.reason is ResetReason.LOST  # type: ignore[union-attr]
            with pytest.raises(LogUnavailable):
                async with hub.watch("ver_other", thread_id="t"):
                    pass
        await redis.aclose()
