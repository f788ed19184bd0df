"""SQL is the truth: the hub finds what was never published, and what is gone."""

import asyncio
from datetime import timedelta

from log_parts import AT_ONCE, NEVER, Thread, events, following
from redis.asyncio import Redis

from pai.log.entries import ResetReason
from pai.log.event_log import EventLog
from pai.log.frames import Deleted
from pai.log.hub import Hub
from pai.log.sequences import sequence_of
from pai.log.subscription import Subscription
from support.waiting import wait_until

SOON = timedelta(milliseconds=20)


async def first(subscription: Subscription) -> object:
    """The first frame."""
    return (await anext(subscription))[0]


async def test_a_publication_that_a_crash_swallowed_is_found_in_sql(hub: Hub, thread: Thread) -> None:
    async with following(hub, thread) as watcher, following(hub, thread) as other:
        thread.commit()
        await hub.check()
        await wait_until(lambda: [watcher.resets, other.resets] == [[ResetReason.LOST]] * 2)
        await hub.check()
        await thread.transact()
        await wait_until(lambda: watcher.revision == 3)
    assert watcher.resets == [ResetReason.LOST, ResetReason.ORDER]


async def test_a_publication_that_is_only_late_is_no_loss(log: EventLog, thread: Thread) -> None:
    grace = timedelta(milliseconds=300)
    async with (
        Hub(log, revisions=thread.revisions, check_every=NEVER, check_grace=grace) as hub,
        following(hub, thread) as watcher,
    ):
        batch = thread.commit()
        check = asyncio.create_task(hub.check())
        await thread.publish(batch)
        await check
        await wait_until(lambda: watcher.revision == 2)
    assert watcher.resets == []


async def test_the_comparison_runs_by_itself_and_survives_a_database_that_is_slow_or_away(
    log: EventLog, thread: Thread
) -> None:
    calls: list[str] = []

    async def revisions(versions: object) -> dict[str, int]:
        calls.append("")
        if len(calls) == 1:
            raise ConnectionError("the database is away")
        if len(calls) == 2:
            await asyncio.Event().wait()
        return {thread.version: thread.revision}

    async with (
        Hub(
            log,
            revisions=revisions,
            check_every=SOON,
            check_grace=AT_ONCE,
            attach_patience=timedelta(milliseconds=500),
        ) as hub,
        following(hub, thread) as watcher,
    ):
        await thread.transact()
        await wait_until(lambda: watcher.revision == 2)
        thread.commit()
        await wait_until(lambda: watcher.resets == [ResetReason.LOST])
    assert len(calls) >= 3


async def test_deleting_tells_watchers_and_ends_their_watch(hub: Hub, thread: Thread, log: EventLog) -> None:
    async with hub.watch(thread.version, thread_id="t") as subscription:
        await thread.transact()
        await log.delete(thread.version)
        found = [frame async for frames in subscription for frame in frames]
    assert [event["type"] for event in events(found)] == ["update", "deleted"]
    for after in (None, sequence_of(1, 1)):
        async with hub.watch(thread.version, thread_id="t", after=after) as subscription:
            found = [frame async for frames in subscription for frame in frames]
            assert [type(frame) for frame in found] == [Deleted]


async def test_a_thread_that_sql_does_not_have_is_deleted(hub: Hub, thread: Thread, redis: "Redis") -> None:
    async with hub.watch(thread.version, thread_id="t") as subscription:
        version, thread.version = thread.version, "another"
        await hub.check()
        assert isinstance(await first(subscription), Deleted)
        assert subscription.ended
    await redis.flushdb()
    async with hub.watch(version, thread_id="t") as subscription:
        assert isinstance(await first(subscription), Deleted)


async def test_watchers_of_a_log_that_begins_anew_hear_it_from_the_log(log: EventLog, thread: Thread) -> None:
    lost: list[str] = []

    async def reopen(version: str) -> bool:
        lost.append(version)
        return len(lost) == 1

    async with (
        Hub(log, revisions=thread.revisions, reopen=reopen, check_every=NEVER, check_grace=AT_ONCE) as hub,
        following(hub, thread) as watcher,
    ):
        thread.commit()
        await hub.check()
        assert watcher.resets == []
        await hub.check()
        await wait_until(lambda: watcher.resets == [ResetReason.LOST])
    assert lost == [thread.version] * 2
