"""Fences: what lost its right to publish is refused, whatever came in between."""

from log_parts import live, opened, transaction
from redis.asyncio import Redis

from pai.log.batches import PublishStatus
from pai.log.entries import ResetReason
from pai.log.event_log import EventLog
from pai.log.keys import meta_key
from pai.log.sequences import sequence_of


async def status(log: EventLog, batch: object) -> PublishStatus:
    [result] = await log.publish([batch])  # type: ignore[list-item]
    return result.status


async def test_an_older_attempt_is_fenced_by_the_newer_ones_batches(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, "a", attempt=2)])
    assert await status(log, live(version, "b", attempt=1, batch=2)) is PublishStatus.FENCED
    assert await status(log, live(version, "b", attempt=3, batch=1)) is PublishStatus.PUBLISHED


async def test_a_fence_refuses_older_attempts_and_answers_the_last_sequence(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, "a"), live(version, "b", number=2)])
    result = await log.fence(version, epoch=1, fences={1: 2, 2: 1})
    assert (result.status, result.last, result.revision) == (PublishStatus.PUBLISHED, sequence_of(1, 3), 1)
    assert await status(log, live(version, "c", batch=2)) is PublishStatus.FENCED
    assert await status(log, live(version, "c", batch=2, number=2)) is PublishStatus.PUBLISHED
    assert await status(log, live(version, "c", attempt=2)) is PublishStatus.PUBLISHED


async def test_a_fence_is_never_lowered(log: EventLog) -> None:
    version = await opened(log)
    await log.fence(version, epoch=1, fences={1: 5})
    await log.fence(version, epoch=1, fences={1: 2})
    assert await status(log, live(version, "a", attempt=4)) is PublishStatus.FENCED


async def test_a_fence_outlives_the_epoch_where_the_log_does(log: EventLog) -> None:
    version = await opened(log)
    await log.fence(version, epoch=1, fences={1: 5})
    await log.publish([transaction(version, 2, epoch=2, opening=True, reason=ResetReason.LOST)])
    assert await status(log, live(version, "a", epoch=2, attempt=4)) is PublishStatus.FENCED
    assert await status(log, live(version, "a", epoch=2, attempt=5)) is PublishStatus.PUBLISHED


async def test_below_the_floor_everything_is_fenced_and_forgotten(log: EventLog, redis: "Redis") -> None:
    version = await opened(log)
    await log.publish([live(version, "a", number=number) for number in (1, 2, 3)])
    await log.publish([transaction(version, 2, floor=3)])
    for number in (1, 2):
        assert await status(log, live(version, "b", number=number, attempt=9, batch=2)) is PublishStatus.FENCED
    assert await status(log, live(version, "b", number=3, batch=2)) is PublishStatus.PUBLISHED
    assert {field for field in await redis.hkeys(meta_key(version)) if field.startswith(b"s:")} == {b"s:3"}


async def test_a_finished_step_above_the_floor_is_fenced(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, "a", number=1), live(version, "a", number=2)])
    await log.publish([transaction(version, 2, floor=1, finished=[2])])
    assert await status(log, live(version, "b", number=2, attempt=9, batch=2)) is PublishStatus.FENCED
    assert await status(log, live(version, "b", number=1, batch=2)) is PublishStatus.PUBLISHED


async def test_the_fences_of_a_transaction_hold_also_when_its_entries_are_not_published(log: EventLog) -> None:
    version = await opened(log)
    assert await status(log, transaction(version, 3, floor=2)) is PublishStatus.EARLY
    assert await status(log, live(version, "a", number=1)) is PublishStatus.FENCED
