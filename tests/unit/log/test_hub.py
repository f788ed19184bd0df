"""The hub: a watcher gets everything, in order and once, or is told to take a snapshot."""

import asyncio
import json
from datetime import timedelta

from log_parts import MESSAGE, NEVER, RUN, Step, Thread, events, following, live, text
from redis.asyncio import Redis

from pai.log.connection import connect
from pai.log.entries import ResetReason, chunk
from pai.log.event_log import EventLog
from pai.log.frames import Batch, Reset
from pai.log.hub import Hub
from pai.log.keys import live_channel, log_key, meta_key
from pai.log.publisher import Publisher
from pai.log.sequences import sequence_of
from pai.protocol.ids import new_id
from support.waiting import wait_until

SOON = timedelta(milliseconds=20)


async def test_a_watcher_gets_what_happens_from_now_on(hub: Hub, thread: Thread, publisher: Publisher) -> None:
    step = Step(thread, publisher)
    step.write("before")
    await step.channel.flush()
    async with following(hub, thread) as watcher:
        assert watcher.position == sequence_of(1, 2) or await wait_until(lambda: watcher.position)
        step.write("a", "b")
        await step.channel.flush()
        await thread.transact(text("c"))
        await wait_until(lambda: watcher.revision == 2)
    assert (watcher.deltas, watcher.gaps, watcher.resets) == (["a", "b", "c"], [], [])
    assert watcher.position == sequence_of(1, 6)


async def test_events_are_the_stored_bytes_in_their_envelope(hub: Hub, thread: Thread) -> None:
    body = '{"type":"text-delta","id":"1","delta":"ä\u2028🙂 \\u0000"}'
    async with hub.watch(thread.version, thread_id='t"1') as subscription:
        assert subscription.ready == (sequence_of(1, 1), 1)
        await thread.transact(chunk(RUN, MESSAGE, body.encode()))
        await thread.log.publish([live(thread.version, entries=[chunk(RUN, MESSAGE, body.encode())])])
        batches: list[Batch] = []
        while sum(len(batch.events) for batch in batches) < 3:
            batches += [frame for frame in await anext(subscription) if isinstance(frame, Batch)]
    common = {"threadId": 't"1', "version": thread.version}
    made = {"type": "chunk", **common, "runId": RUN, "messageId": MESSAGE, "chunk": json.loads(body)}
    assert events(batches) == [
        {**made, "sequence": sequence_of(1, 2), "revision": 2},
        {"type": "update", **common, "sequence": sequence_of(1, 3), "revision": 2, "changes": {"r": 2}},
        {**made, "sequence": sequence_of(1, 4)},
    ]
    sent = b"".join(batch.sse() for batch in batches).decode()
    ids = [f"id: {thread.version}:{sequence_of(1, n)}" for n in (2, 3, 4)]
    assert [line for line in sent.split("\n") if line.startswith("id: ")] == ids
    assert body in sent
    assert sent.count("\n\n") == 3


async def test_a_jump_is_repaired_from_the_log(hub: Hub, thread: Thread, redis: "Redis", log: EventLog) -> None:
    async with following(hub, thread) as watcher:
        await _publish_silently(log, redis, thread, "a", "b")
        await log.publish([live(thread.version, "c", batch=2)])
        await wait_until(lambda: watcher.deltas == ["a", "b", "c"])
        # What comes again, or overlaps what is known, changes nothing.
        await redis.publish(live_channel(thread.version), b"%d\nr/m\t\t{}" % sequence_of(1, 2))
        overlapping = b'%d\nr/m\t\t{}\nrun_1/msg_1\t\t{"delta":"d"}' % sequence_of(1, 4)
        await redis.publish(live_channel(thread.version), overlapping)
        await wait_until(lambda: watcher.deltas == ["a", "b", "c", "d"])
    assert (watcher.gaps, watcher.resets) == ([], [])


async def test_a_jump_that_the_log_cannot_repair_becomes_a_reset(
    hub: Hub, thread: Thread, redis: "Redis", log: EventLog
) -> None:
    async with following(hub, thread) as watcher:
        await _publish_silently(log, redis, thread, "a", "b")
        await log.trim(thread.version, below=sequence_of(1, 4), keep=1)
        await log.publish([live(thread.version, "c", batch=2)])
        await wait_until(lambda: watcher.resets == [ResetReason.TRIMMED])
        await log.publish([live(thread.version, "d", batch=3)])
        await wait_until(lambda: watcher.deltas[-1:] == ["d"])
    assert watcher.gaps == []


async def _publish_silently(log: EventLog, redis: "Redis", thread: Thread, *some: str) -> None:
    """Appends to the log without telling anybody, as when a message is lost on its way."""
    read = await log.read_after(thread.version, sequence=0, limit=0)
    for n, one in enumerate(some, read.n + 1):
        await redis.xadd(log_key(thread.version), dict([text(one)]), id=f"{sequence_of(1, n)}-0")
        await redis.hset(meta_key(thread.version), "n", n)


async def test_a_watcher_that_falls_behind_its_buffer_is_told_and_goes_on(log: EventLog, thread: Thread) -> None:
    async with (
        Hub(log, revisions=thread.revisions, check_every=NEVER, max_count=10) as hub,
        hub.watch(thread.version, thread_id="t") as slow,
        hub.watch(thread.version, thread_id="t") as other,
    ):
        seen = 0
        for batch in range(1, 9):
            await log.publish([live(thread.version, *range(3), batch=batch)])
            seen += len(events(await anext(other)))
        assert seen == 24
        frames = await anext(slow)
        assert isinstance(frames[-1], Reset)
        assert frames[-1].reason is ResetReason.OVERFLOW
        rest = events(slow.take())
        positions = [frames[-1].event.sequence, *(event["sequence"] for event in rest)]
        assert positions == list(range(positions[0], sequence_of(1, 25) + 1))


async def test_a_single_event_larger_than_the_buffer_is_still_passed_on(log: EventLog, thread: Thread) -> None:
    async with (
        Hub(log, revisions=thread.revisions, check_every=NEVER, max_bytes=1_000) as hub,
        hub.watch(thread.version, thread_id="t") as subscription,
    ):
        await thread.transact(text("x" * 100_000))
        assert len(events(await anext(subscription))) == 2


async def test_two_hundred_watchers_of_ten_threads_each_get_everything_in_order(log: EventLog) -> None:
    threads = [Thread(log) for _ in range(10)]
    for thread in threads:
        await thread.create()

    async def revisions(versions: object) -> dict[str, int]:
        return {thread.version: thread.revision for thread in threads}

    async def watch(hub: Hub, thread: Thread, ready: asyncio.Semaphore) -> list[str]:
        async with following(hub, thread) as watcher:
            ready.release()
            await wait_until(lambda: watcher.revision == 2, timeout=timedelta(seconds=30))
        assert (watcher.gaps, watcher.resets) == ([], [])
        return watcher.deltas

    ready = asyncio.Semaphore(0)
    async with Hub(log, revisions=revisions, check_every=NEVER) as hub, Publisher(log) as publisher:
        watchers = [asyncio.create_task(watch(hub, threads[n % 10], ready)) for n in range(200)]
        for _ in watchers:
            await ready.acquire()
        assert hub.watchers == 200
        steps = [Step(thread, publisher) for thread in threads]
        for number in range(100):
            for step in steps:
                step.write(number)
            await asyncio.sleep(0)
        for step in steps:
            await step.channel.flush()
            await step.thread.transact()
        for received in await asyncio.gather(*watchers):
            assert received == [str(number) for number in range(100)]
        assert hub.watchers == 0


async def test_a_watch_waits_no_longer_than_its_timeout(hub: Hub, thread: Thread) -> None:
    async with hub.watch(thread.version, thread_id="t") as subscription:
        assert await subscription.next(timeout=SOON) == []
        assert not subscription.ended


async def test_leaving_the_hub_ends_all_watches(log: EventLog, thread: Thread) -> None:
    hub = Hub(log, revisions=thread.revisions, check_every=NEVER)
    async with hub:
        watch = hub.watch(thread.version, thread_id="t")
        heads = hub.watch_heads("owner", "main")
        subscription, list_subscription = await watch.__aenter__(), await heads.__aenter__()
    assert [frames async for frames in subscription] == []
    assert [items async for items in list_subscription] == []
    await watch.__aexit__(None, None, None)
    await heads.__aexit__(None, None, None)


async def test_heads_reach_the_watchers_of_their_owner_and_agent_alone(hub: Hub, log: EventLog) -> None:
    owner, other = f"tenant:{new_id('own')}/ü", new_id("own")
    async with (
        hub.watch_heads(owner, "main") as mine,
        hub.watch_heads(owner, "main") as too,
        hub.watch_heads(other, "main") as not_mine,
        hub.watch_heads(owner, "second") as not_this,
    ):
        await log.publish_head(owner, "main", b'{"type":"head"}')
        assert await anext(mine) == [b'{"type":"head"}'] == await anext(too)
        await log.publish_head(other, "main", b"1")
        await log.publish_head(owner, "second", b"2")
        assert (await anext(not_mine), await anext(not_this)) == ([b"1"], [b"2"])
        assert await mine.next(timeout=SOON) == []


async def test_heads_are_not_heard_in_another_database_of_the_same_server() -> None:
    """Redis' channels are those of the whole server."""
    logs = [EventLog(connect(f"redis://127.0.0.1:6379/{database}")) for database in (1, 2)]
    one, other = (log.heads_channel("owner", "main") for log in logs)
    assert one != other
