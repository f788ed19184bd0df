"""The publisher: everything that was written is in the log once and in order, or its writer is told why not."""

import asyncio
from datetime import timedelta

import pytest
from log_parts import MESSAGE, RUN, Step, Thread, live, texts
from recording_log import RecordingLog, bodies, logged
from redis.asyncio import Redis
from redis_proxy import Proxy, proxy_to

from pai.log.connection import connect
from pai.log.entries import chunk
from pai.log.errors import Fenced
from pai.log.event_log import EventLog
from pai.log.live_channel import LiveChannel, Reopening
from pai.log.publisher import Publisher
from pai.log.sequences import sequence_of
from support.waiting import wait_until


@pytest.fixture
def log(redis: "Redis") -> RecordingLog:
    return RecordingLog(redis)


@pytest.fixture
async def thread(log: RecordingLog) -> Thread:
    thread = Thread(log)
    await thread.create()
    log.sent.clear()
    return thread


async def test_flush_returns_the_last_sequence_once_everything_is_in_the_log(
    thread: Thread, publisher: Publisher
) -> None:
    step = Step(thread, publisher)
    assert await step.channel.flush() == 0
    step.write("a", "b", "c")
    assert await step.channel.flush() == sequence_of(1, 4)
    assert await logged(thread) == bodies("a", "b", "c")
    step.write("d")
    assert await step.channel.flush() == sequence_of(1, 5)


async def test_what_is_written_while_a_batch_is_under_way_leaves_with_the_next(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    first, second = Step(thread, publisher), Step(thread, publisher, number=2)
    log.gate.clear()
    first.write("a")
    await wait_until(lambda: len(log.sent) == 1)
    first.write("b", "c")
    second.write("d")
    log.gate.set()
    await asyncio.gather(first.channel.flush(), second.channel.flush())
    assert [[len(batch.entries) for batch in batches] for batches in log.sent] == [[1], [2, 1]]


async def test_a_busy_publisher_gathers(thread: Thread, log: RecordingLog) -> None:
    async with Publisher(log, gather=timedelta(milliseconds=50), busy_entries_per_second=1) as publisher:
        step = Step(thread, publisher)
        for number in range(20):
            step.write(number)
            await asyncio.sleep(0.01)
        await step.channel.flush()
    assert len(log.sent) < 15
    assert await logged(thread) == bodies(*range(20))


async def test_a_lost_reply_repeats_the_batch_unchanged_and_nothing_is_doubled(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    log.lose_replies = 2
    step.write("a", "b")
    await wait_until(lambda: log.sent)
    step.write("c")
    assert await step.channel.flush() == sequence_of(1, 4)
    assert await logged(thread) == bodies("a", "b", "c")
    assert log.sent[0][0].batch == log.sent[1][0].batch == log.sent[2][0].batch == log.sent[3][0].batch - 1


async def test_replies_that_the_network_loses_are_no_different(own_redis: object) -> None:
    proxy = proxy_to(own_redis.url)  # type: ignore[attr-defined]
    async with proxy.running():
        redis = connect(f"redis://127.0.0.1:{proxy.port}/0")
        thread = Thread(EventLog(redis))
        await thread.create()
        async with Publisher(thread.log) as publisher:
            step = Step(thread, publisher)
            step.write("a")
            await step.channel.flush()
            await _lose(proxy, step, "b")
            await _lose(proxy, step, "c")
            assert await step.channel.flush() == sequence_of(1, 4)
        assert await logged(thread) == bodies("a", "b", "c")
        await redis.aclose()


async def _lose(proxy: Proxy, step: Step, delta: str) -> None:
    proxy.lose_replies, lost = True, proxy.lost
    step.write(delta)
    await wait_until(lambda: proxy.lost > lost)
    proxy.lose_replies = False


async def test_an_outage_of_the_server_loses_nothing_and_writers_feel_back_pressure(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    log.lose_replies = 3
    big = "x" * 100_000
    step.write(big, big, big)
    room = asyncio.create_task(step.channel.room())
    await wait_until(lambda: len(log.sent) == 2)
    assert not room.done()
    await room
    await step.channel.flush()
    assert await logged(thread) == bodies(big, big, big)


async def test_a_fenced_channel_raises_from_then_on(thread: Thread, publisher: Publisher, log: RecordingLog) -> None:
    step = Step(thread, publisher)
    step.write("a")
    await step.channel.flush()
    await log.fence(thread.version, epoch=1, fences={1: 2})
    step.write("b")
    for call in (step.channel.flush, step.channel.flush, step.channel.room):
        with pytest.raises(Fenced):
            await call()
    with pytest.raises(Fenced):
        step.write("c")
    assert await logged(thread) == bodies("a")


async def test_a_channel_of_a_deleted_thread_is_fenced_and_knows_why(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    await log.delete(thread.version)
    step.write("a")
    with pytest.raises(Fenced) as raised:
        await step.channel.flush()
    assert raised.value.deleted


async def test_one_channel_that_recovers_or_fails_does_not_hold_up_the_others(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    async def never(channel: LiveChannel) -> Reopening:
        await asyncio.Event().wait()
        raise AssertionError

    stuck = publisher.channel("ver_unknown", epoch=1, number=1, attempt=1, on_lost=never)
    stuck.write(*texts("a")[0])
    step = Step(thread, publisher)
    step.write("a")
    await step.channel.flush()
    waiting = asyncio.create_task(stuck.flush())
    step.write("b")
    await step.channel.flush()
    assert not waiting.done()
    stuck.close()
    with pytest.raises(Fenced):
        await waiting


async def test_nothing_is_sent_before_what_it_comes_after(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    """A step may stream while the transaction that made it is still being published."""
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    later, other = Step(thread, publisher, after=made), Step(thread, publisher, number=2)
    later.write("b")
    other.write("a")
    await other.channel.flush()
    waiting = asyncio.create_task(later.channel.flush())
    later.write("c")
    other.write("a2")
    await other.channel.flush()
    assert [[batch.number for batch in batches] for batches in log.sent] == [[2], [2]]
    made.set_result(None)
    await waiting
    assert await logged(thread) == bodies("a", "a2", "b", "c")


async def test_what_is_no_json_is_refused_at_once(thread: Thread, publisher: Publisher) -> None:
    step = Step(thread, publisher)
    with pytest.raises(ValueError, match="not the JSON"):
        step.channel.write(*chunk(RUN, MESSAGE, b"{\n}"))
    step.write("a")
    await step.channel.flush()
    assert await logged(thread) == bodies("a")


async def test_more_than_fits_in_one_batch_leaves_in_several(thread: Thread, publisher: Publisher) -> None:
    step = Step(thread, publisher)
    step.write(*range(3_500))
    assert await step.channel.flush() == sequence_of(1, 3_501)
    assert await logged(thread) == bodies(*range(3_500))


async def test_an_older_attempt_of_the_same_step_stops_when_the_newer_publishes(
    thread: Thread, publisher: Publisher, log: RecordingLog
) -> None:
    zombie = Step(thread, publisher)
    zombie.write("a")
    await zombie.channel.flush()
    await log.publish([live(thread.version, "b", attempt=2)])
    zombie.write("c")
    with pytest.raises(Fenced):
        await zombie.channel.flush()
    assert await logged(thread) == bodies("a", "b")
