"""Where a watch begins: right after the watcher's position, or with a reset."""

import asyncio
from datetime import timedelta

import pytest
from log_parts import NEVER, Step, Thread, deltas, events, following, live, text
from redis.asyncio import Redis

from pai.log import topic
from pai.log.batches import LogRead
from pai.log.entries import ResetReason
from pai.log.event_log import EventLog
from pai.log.frames import Reset
from pai.log.hub import Hub
from pai.log.publisher import Publisher
from pai.log.sequences import sequence_of
from pai.log.subscription import Subscription
from support.waiting import wait_until

SOON = timedelta(milliseconds=20)


async def first(subscription: Subscription) -> object:
    """The first frame."""
    return (await anext(subscription))[0]


async def test_a_watcher_continues_right_after_its_position(hub: Hub, thread: Thread, publisher: Publisher) -> None:
    step = Step(thread, publisher)
    step.write(*range(10))
    await step.channel.flush()
    for after in range(1, 12):
        async with hub.watch(thread.version, thread_id="t", after=sequence_of(1, after)) as subscription:
            assert subscription.ready.sequence == sequence_of(1, after)
            assert deltas(events(subscription.take())) == [str(n) for n in range(after - 1, 10)]


async def test_what_is_published_while_a_watcher_attaches_comes_once(
    hub: Hub, thread: Thread, publisher: Publisher
) -> None:
    step = Step(thread, publisher)
    step.write(0)
    start = await step.channel.flush()

    async def attach() -> None:
        async with following(hub, thread, after=start) as watcher:
            await wait_until(lambda: watcher.revision == 2)
        assert (watcher.deltas, watcher.gaps, watcher.resets) == ([str(n) for n in range(1, 200)], [], [])

    watchers = [asyncio.create_task(attach()) for _ in range(10)]
    for number in range(1, 200):
        step.write(number)
        await asyncio.sleep(0)
        if number % 20 == 0:
            watchers.append(asyncio.create_task(attach()))
    await step.channel.flush()
    await thread.transact()
    await asyncio.gather(*watchers)


async def test_what_arrives_live_and_is_also_read_from_the_log_comes_once(redis: "Redis", thread: Thread) -> None:
    reading, published = asyncio.Event(), asyncio.Event()

    class SlowLog(EventLog):
        async def read_after(self, version: str, *, sequence: int, limit: int | None = None) -> LogRead:
            if sequence == sequence_of(1, 1):
                reading.set()
                await published.wait()
            return await super().read_after(version, sequence=sequence, limit=limit)

    slow = SlowLog(redis)
    await thread.transact(text("a"))
    async with (
        Hub(slow, revisions=thread.revisions, check_every=NEVER) as hub,
        hub.watch(thread.version, thread_id="t") as other,
    ):
        attaching = asyncio.create_task(_watch_until(hub, thread, sequence_of(1, 1), revision=4))
        await reading.wait()
        await thread.transact(text("b"))
        while not [event for event in events(await anext(other)) if event["type"] == "update"]:
            pass
        published.set()
        await thread.transact(text("c"))
        watcher = await attaching
    assert [event["sequence"] for event in watcher] == [sequence_of(1, n) for n in range(2, 8)]


async def _watch_until(hub: Hub, thread: Thread, after: int, *, revision: int) -> list[dict[str, object]]:
    """All events until the update of a revision."""
    found: list[dict[str, object]] = []
    async with hub.watch(thread.version, thread_id="t", after=after) as subscription:
        while not [event for event in found if event["type"] == "update" and event["revision"] == revision]:
            found += events(await anext(subscription))
    return found


async def test_a_watcher_that_is_too_far_behind_takes_a_snapshot(
    hub: Hub, thread: Thread, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "CATCH_UP_ENTRIES", 5)
    step = Step(thread, publisher)
    step.write(*range(10))
    last = await step.channel.flush()
    async with hub.watch(thread.version, thread_id="t", after=last - 5) as subscription:
        assert deltas(events(subscription.take())) == ["5", "6", "7", "8", "9"]
    async with hub.watch(thread.version, thread_id="t", after=last - 6) as subscription:
        frame = await first(subscription)
        assert isinstance(frame, Reset)
        assert (frame.reason, frame.event.sequence) == (ResetReason.OVERFLOW, last)


@pytest.mark.parametrize("after", [sequence_of(1, 99), sequence_of(3, 1), 1 << 53, 1 << 70, -1])
async def test_a_position_ahead_of_the_log_begins_with_a_reset(hub: Hub, thread: Thread, after: int) -> None:
    async with hub.watch(thread.version, thread_id="t", after=after) as subscription:
        frame = await first(subscription)
        assert isinstance(frame, Reset)
        assert (frame.reason, frame.event.sequence) == (ResetReason.LOST, sequence_of(1, 1))
        await thread.transact()
        assert [event["type"] for event in events(await anext(subscription))] == ["update"]


async def test_a_position_of_an_older_epoch_begins_with_the_reset_of_the_newer(
    hub: Hub, thread: Thread, redis: "Redis"
) -> None:
    await redis.flushdb()
    await thread.transact()
    async with hub.watch(thread.version, thread_id="t", after=sequence_of(1, 1)) as subscription:
        assert [event["type"] for event in events([await first(subscription)])] == ["reset"]
        assert [event["type"] for event in events(await anext(subscription))] == ["update"]


async def test_a_position_that_was_trimmed_away_begins_with_a_reset(
    hub: Hub, thread: Thread, publisher: Publisher
) -> None:
    step = Step(thread, publisher)
    step.write(*range(50))
    last = await step.channel.flush()
    await thread.log.trim(thread.version, below=last, keep=10)
    async with hub.watch(thread.version, thread_id="t", after=last - 10) as subscription:
        assert len(events(subscription.take())) == 10
    async with hub.watch(thread.version, thread_id="t", after=last - 11) as subscription:
        frame = await first(subscription)
        assert isinstance(frame, Reset)
        assert (frame.reason, frame.event.sequence) == (ResetReason.TRIMMED, last)


async def test_a_log_that_expired_makes_a_known_position_worthless_and_now_is_the_revision_of_sql(
    hub: Hub, thread: Thread, redis: "Redis"
) -> None:
    await redis.flushdb()
    async with hub.watch(thread.version, thread_id="t", after=sequence_of(1, 1)) as subscription:
        frame = await first(subscription)
        assert isinstance(frame, Reset)
        assert frame.reason is ResetReason.LOST
    async with hub.watch(thread.version, thread_id="t") as subscription:
        assert subscription.ready == (0, 1)
        await hub.check()
        assert subscription.take() == []
        await thread.transact()
        assert [event["type"] for event in events(await anext(subscription))] == ["reset"]


async def test_a_watcher_that_comes_before_the_first_publish_gets_it(log: EventLog) -> None:
    thread = Thread(log)
    thread.revision = 1

    async with (
        Hub(log, revisions=thread.revisions, check_every=NEVER) as hub,
        hub.watch(thread.version, thread_id="t") as subscription,
    ):
        thread.revision = 0
        await thread.create()
        await thread.transact()
        found: list[dict[str, object]] = []
        while len(found) < 2:
            found += events(await anext(subscription))
    assert [(event["type"], event["sequence"]) for event in found] == [
        ("update", sequence_of(1, 1)),
        ("update", sequence_of(1, 2)),
    ]


async def test_after_a_snapshot_only_what_is_newer_comes(hub: Hub, thread: Thread, log: EventLog) -> None:
    async with hub.watch(thread.version, thread_id="t") as subscription:
        await log.publish([live(thread.version, "a", "b", "c")])
        await thread.transact()
        subscription.skip_to(sequence_of(1, 3), revision=1)
        found = []
        while len(found) < 2:
            found += events(await anext(subscription))
        assert [event["sequence"] for event in found] == [sequence_of(1, 4), sequence_of(1, 5)]


async def test_frames_after_a_reset_are_given_after_it_was_handled(hub: Hub, thread: Thread, redis: "Redis") -> None:
    async with hub.watch(thread.version, thread_id="t") as subscription:
        await redis.flushdb()
        await thread.transact()
        await thread.transact()
        frames = await anext(subscription)
        assert isinstance(frames[-1], Reset)
        subscription.skip_to(sequence_of(2, 2), revision=2)
        assert [event["sequence"] for event in events(await anext(subscription))] == [sequence_of(2, 3)]
