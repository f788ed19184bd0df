"""A live step whose log was lost stores its folding and goes on under another epoch, beginning with a reset."""

import asyncio

import pytest
from log_parts import Step, Thread, texts
from recording_log import RecordingLog, bodies, logged
from redis.asyncio import Redis

from pai.log.entries import EntryKind
from pai.log.errors import Fenced
from pai.log.keys import meta_key
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


async def test_after_a_loss_the_step_that_raised_the_epoch_opens_the_log_with_a_reset(
    thread: Thread, publisher: Publisher, redis: "Redis", log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    step.write("a", "b")
    await step.channel.flush()
    await redis.flushdb()
    step.write("c")
    assert await step.channel.flush() == sequence_of(2, 1)
    step.write("d")
    assert await step.channel.flush() == sequence_of(2, 2)
    read = await log.read_after(thread.version, sequence=0)
    assert [(entry.kind, entry.revision) for entry in read.entries] == [(EntryKind.RESET, 2), (EntryKind.CHUNK, None)]
    assert (thread.folded, await logged(thread)) == (["a", "b", "c"], bodies("d"))


async def test_a_step_that_finds_a_newer_epoch_joins_it_with_a_reset(
    thread: Thread, publisher: Publisher, redis: "Redis", log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    step.write("a")
    await step.channel.flush()
    await redis.flushdb()
    await thread.transact()
    step.write("b")
    assert await step.channel.flush() == sequence_of(2, 3)
    read = await log.read_after(thread.version, sequence=0)
    assert [entry.kind for entry in read.entries] == ["reset", "update", "reset"]
    assert (thread.epoch, thread.folded) == (2, ["a", "b"])


async def test_a_log_that_was_restored_from_an_older_state_is_lost_to_its_writer(
    thread: Thread, publisher: Publisher, redis: "Redis"
) -> None:
    step = Step(thread, publisher)
    step.write("a")
    await step.channel.flush()
    key = meta_key(thread.version)
    before = await redis.hgetall(key)
    step.write("b")
    await step.channel.flush()
    await redis.hset(key, mapping=before)
    step.write("c")
    assert await step.channel.flush() == sequence_of(2, 1)
    assert thread.folded == ["a", "b", "c"]


async def test_what_is_written_while_the_folding_is_stored_follows_the_reset(
    thread: Thread, publisher: Publisher, redis: "Redis"
) -> None:
    storing, stored = asyncio.Event(), asyncio.Event()
    step = Step(thread, publisher)

    async def on_lost(channel: LiveChannel) -> Reopening:
        reopening = await thread.reopen(channel, step.written)
        storing.set()
        await stored.wait()
        return reopening

    step.channel = publisher.channel(thread.version, epoch=1, number=1, attempt=1, on_lost=on_lost)
    await redis.flushdb()
    step.write("a")
    await storing.wait()
    step.write("b", "c")
    stored.set()
    assert await step.channel.flush() == sequence_of(2, 3)
    assert (thread.folded, await logged(thread)) == (["a"], bodies("b", "c"))


async def test_an_opening_whose_reply_was_lost_is_not_repeated_as_an_opening(
    thread: Thread, publisher: Publisher, redis: "Redis", log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    await redis.flushdb()
    step.write("a")
    await wait_until(lambda: log.sent)
    log.lose_replies = 2
    await step.channel.flush()
    assert [batch.opening for [batch] in log.sent].count(True) == 1
    assert (thread.epoch, step.channel.sequence) == (2, sequence_of(2, 1))


async def test_an_opening_that_was_lost_with_the_log_raises_another_epoch(
    thread: Thread, publisher: Publisher, redis: "Redis", log: RecordingLog
) -> None:
    step = Step(thread, publisher)
    await redis.flushdb()
    step.write("a")
    await wait_until(lambda: any(batch.opening for [batch] in log.sent))
    log.lose_replies = 1
    await redis.flushdb()
    step.write("b")
    await step.channel.flush()
    openings = [batch.epoch for [batch] in log.sent if batch.opening]
    assert len(openings) == len(set(openings))
    assert thread.epoch == openings[-1]
    _, _, deltas = await thread.snapshot()
    assert deltas == ["a", "b"]


async def test_what_on_lost_raises_reaches_the_writer(thread: Thread, publisher: Publisher, redis: "Redis") -> None:
    async def on_lost(channel: LiveChannel) -> Reopening:
        raise Fenced("the step was taken over")

    channel = publisher.channel(thread.version, epoch=1, number=1, attempt=1, on_lost=on_lost)
    await redis.flushdb()
    channel.write(*texts("a")[0])
    with pytest.raises(Fenced, match="taken over"):
        await channel.flush()


async def test_a_folding_that_lacks_acknowledged_text_is_an_error(
    thread: Thread, publisher: Publisher, redis: "Redis"
) -> None:
    async def on_lost(channel: LiveChannel) -> Reopening:
        return Reopening(epoch=2, opening=True, revision=2, covered=0)

    channel = publisher.channel(thread.version, epoch=1, number=1, attempt=1, on_lost=on_lost)
    channel.write(*texts("a")[0])
    await channel.flush()
    await redis.flushdb()
    channel.write(*texts("b")[0])
    with pytest.raises(ValueError, match="covered"):
        await channel.flush()
