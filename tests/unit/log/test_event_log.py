"""What the event log answers, and what it holds."""

import asyncio
import json
from dataclasses import replace

import pytest
from log_parts import MESSAGE, RUN, live, opened, text, texts, transaction
from redis.asyncio import Redis

from pai.log.batches import LogState, PublishStatus
from pai.log.entries import EntryKind, ResetReason, chunk, update
from pai.log.errors import LogError
from pai.log.event_log import EventLog
from pai.log.keys import live_channel, log_key, meta_key
from pai.log.sequences import sequence_of
from pai.protocol.ids import new_id


async def status(log: EventLog, batch: object) -> PublishStatus:
    [result] = await log.publish([batch])  # type: ignore[list-item]
    return result.status


async def test_a_batch_gets_contiguous_sequences_and_is_read_back_as_written(log: EventLog) -> None:
    version = await opened(log)
    [result] = await log.publish([live(version, "a", "b", "ä\u2028🙂")])
    assert (result.status, result.first, result.last) == (
        PublishStatus.PUBLISHED,
        sequence_of(1, 2),
        sequence_of(1, 4),
    )
    read = await log.read_after(version, sequence=sequence_of(1, 1))
    assert [entry.sequence for entry in read.entries] == [sequence_of(1, n) for n in (2, 3, 4)]
    assert [(entry.field, entry.body) for entry in read.entries] == texts("a", "b", "ä\u2028🙂")
    assert {(entry.kind, entry.run_id, entry.message_id, entry.revision) for entry in read.entries} == {
        (EntryKind.CHUNK, RUN, MESSAGE, None)
    }
    assert (read.state, read.epoch, read.n, read.revision, read.last) == (LogState.LIVE, 1, 4, 1, sequence_of(1, 4))


async def test_a_transaction_carries_its_revision_on_every_entry(log: EventLog) -> None:
    version = await opened(log)
    [result] = await log.publish([transaction(version, 2, entries=[text("a"), update(b"{}")])])
    read = await log.read_after(version, sequence=result.first - 1)
    assert [(entry.kind, entry.revision) for entry in read.entries] == [(EntryKind.CHUNK, 2), (EntryKind.UPDATE, 2)]
    assert read.revision == 2


async def test_many_batches_of_many_threads_leave_in_one_call(log: EventLog) -> None:
    versions = [await opened(log) for _ in range(5)]
    results = await log.publish([live(version, "a") for version in versions])
    assert [result.status for result in results] == [PublishStatus.PUBLISHED] * 5


async def test_a_new_thread_opens_without_a_reset(log: EventLog) -> None:
    read = await log.read_after(await opened(log), sequence=0)
    assert [entry.kind for entry in read.entries] == [EntryKind.UPDATE]


async def test_a_repeated_batch_answers_its_old_sequences_and_appends_nothing(log: EventLog) -> None:
    version = await opened(log)
    [first] = await log.publish([live(version, "a", "b")])
    [again] = await log.publish([live(version, "a", "b")])
    assert (again.status, again.first, again.last) == (PublishStatus.DUPLICATE, first.first, first.last)
    assert (await log.read_after(version, sequence=0)).n == 3


async def test_a_repeated_transaction_is_dropped(log: EventLog) -> None:
    version = await opened(log)
    assert await status(log, transaction(version, 2)) is PublishStatus.PUBLISHED
    assert await status(log, transaction(version, 2)) is PublishStatus.DROPPED
    assert await status(log, transaction(version, 1)) is PublishStatus.DROPPED
    assert (await log.read_after(version, sequence=0)).n == 2


async def test_without_a_log_everything_but_an_opening_is_lost(log: EventLog) -> None:
    version = new_id("ver")
    assert await status(log, live(version, "a")) is PublishStatus.LOST
    assert await status(log, transaction(version, 1)) is PublishStatus.LOST
    assert (await log.fence(version, epoch=1, fences={1: 2})).status is PublishStatus.LOST
    assert (await log.read_after(version, sequence=0)).state is LogState.MISSING


@pytest.mark.parametrize("epoch", [1, 3])
async def test_another_epoch_is_lost_whether_older_or_newer(log: EventLog, epoch: int) -> None:
    version = await opened(log)
    assert await status(log, transaction(version, 2, epoch=2, opening=True, reason=ResetReason.LOST)) == "published"
    assert await status(log, live(version, "a", epoch=epoch)) is PublishStatus.LOST
    assert await status(log, transaction(version, 3, epoch=epoch)) is PublishStatus.LOST
    assert (await log.fence(version, epoch=epoch, fences={1: 2})).status is PublishStatus.LOST


async def test_an_epoch_is_opened_once(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([transaction(version, 2)])
    for epoch in (0, 1):
        again = transaction(version, 3, epoch=epoch, opening=True, reason=ResetReason.LOST)
        assert await status(log, again) is PublishStatus.LOST
    assert (await log.read_after(version, sequence=0)).n == 2


async def test_opening_a_higher_epoch_begins_with_a_reset_that_sets_the_revision(log: EventLog) -> None:
    version = await opened(log)
    [result] = await log.publish([live(version, "a", epoch=2, opening=True, revision=7)])
    read = await log.read_after(version, sequence=0)
    assert [(entry.kind, entry.revision) for entry in read.entries] == [(EntryKind.RESET, 7), (EntryKind.CHUNK, None)]
    assert read.entries[0].body == b"lost"
    assert (result.first, result.last, read.revision) == (sequence_of(2, 1), sequence_of(2, 2), 7)
    assert await status(log, transaction(version, 8, epoch=2)) is PublishStatus.PUBLISHED


async def test_numbers_of_batches_start_again_with_an_epoch(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, "a", batch=5)])
    assert await status(log, live(version, "b", epoch=2, batch=1, opening=True, revision=2)) is PublishStatus.PUBLISHED


async def test_a_step_that_joins_a_newer_epoch_begins_with_a_reset(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([transaction(version, 2, epoch=2, opening=True, reason=ResetReason.LOST)])
    joining = live(version, "a", epoch=2, batch=9, reason=ResetReason.LOST, revision=3)
    assert await status(log, joining) is PublishStatus.PUBLISHED
    read = await log.read_after(version, sequence=0)
    assert [entry.kind for entry in read.entries] == ["reset", "update", "reset", "chunk"]
    assert read.revision == 3


async def test_a_log_that_was_restored_from_an_older_state_is_lost(log: EventLog) -> None:
    version = await opened(log)
    assert await status(log, live(version, "a", seen=sequence_of(1, 1))) is PublishStatus.PUBLISHED
    assert await status(log, live(version, "b", batch=2, seen=sequence_of(1, 3))) is PublishStatus.LOST
    assert await status(log, transaction(version, 2, seen=sequence_of(1, 3))) is PublishStatus.LOST


async def test_two_transactions_that_publish_in_the_wrong_order_end_in_order(log: EventLog) -> None:
    version = await opened(log)
    second = asyncio.create_task(log.publish_transaction(transaction(version, 3)))
    await asyncio.sleep(0)
    first = await log.publish_transaction(transaction(version, 2))
    results = [first, await second]
    assert [result.status for result in results] == [PublishStatus.PUBLISHED] * 2
    read = await log.read_after(version, sequence=0)
    assert [entry.revision for entry in read.entries] == [1, 2, 3]


async def test_a_transaction_whose_predecessor_never_comes_becomes_one_reset(log: EventLog) -> None:
    version = await opened(log)
    result = await log.publish_transaction(transaction(version, 3))
    read = await log.read_after(version, sequence=0)
    assert result.status is PublishStatus.PUBLISHED
    assert [(entry.kind, entry.revision, entry.body) for entry in read.entries[1:]] == [(EntryKind.RESET, 3, b"order")]
    assert (await log.publish_transaction(transaction(version, 2))).status is PublishStatus.DROPPED
    assert (await log.publish_transaction(transaction(version, 4))).status is PublishStatus.PUBLISHED


async def test_a_deleted_thread_refuses_everything_and_says_so(log: EventLog, redis: "Redis") -> None:
    version = await opened(log)
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(live_channel(version))
        await log.delete(version)
        while (message := await pubsub.get_message(timeout=5)) and message["type"] != "message":
            pass
    assert message["data"] == b"%d\nd\t\t" % sequence_of(1, 2)
    for batch in (
        live(version, "a"),
        live(version, "a", epoch=2, opening=True, revision=3),
        transaction(version, 2),
        transaction(version, 2, epoch=2, opening=True, reason=ResetReason.LOST),
    ):
        assert await status(log, batch) is PublishStatus.DELETED
    assert (await log.fence(version, epoch=1, fences={1: 2})).status is PublishStatus.DELETED
    assert (await log.read_after(version, sequence=0)).state is LogState.DELETED
    await log.delete(version)
    assert (await log.read_after(version, sequence=0)).state is LogState.DELETED


async def test_deleting_a_thread_that_has_no_log_leaves_the_tombstone_too(log: EventLog) -> None:
    version = new_id("ver")
    await log.delete(version)
    assert await status(log, transaction(version, 1, opening=True)) is PublishStatus.DELETED


async def test_every_key_expires_an_hour_after_the_last_publish(log: EventLog, redis: "Redis") -> None:
    version, gone = await opened(log), await opened(log)
    await log.delete(gone)
    for key in (meta_key(version), log_key(version)):
        await redis.expire(key, 60)
    await log.publish([live(version, "a")])
    keys = await redis.keys("*")
    assert set(keys) == {meta_key(version), log_key(version), meta_key(gone)}
    for key in keys:
        assert 3_590 < await redis.ttl(key) <= 3_600


async def test_trimming_keeps_the_young_and_all_from_the_given_sequence(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, *range(99))])

    async def oldest() -> int:
        return (await log.read_after(version, sequence=0, limit=0)).oldest

    await log.trim(version, below=sequence_of(1, 100), keep=1_000)
    assert await oldest() == sequence_of(1, 1)
    await log.trim(version, below=sequence_of(1, 20), keep=10)
    assert await oldest() == sequence_of(1, 20)
    await log.trim(version, below=sequence_of(1, 100), keep=10)
    assert await oldest() == sequence_of(1, 91)
    await log.trim(new_id("ver"), below=5)
    assert (await log.read_after(version, sequence=0)).n == 100


async def test_a_limited_read_gives_the_first_entries_and_the_head(log: EventLog) -> None:
    version = await opened(log)
    await log.publish([live(version, *range(9))])
    read = await log.read_after(version, sequence=sequence_of(1, 3), limit=2)
    assert [entry.sequence for entry in read.entries] == [sequence_of(1, 4), sequence_of(1, 5)]
    assert (read.n, (await log.read_after(version, sequence=0, limit=0)).entries) == (10, [])


async def test_a_snapshot_reads_only_its_open_messages_beyond_what_it_knows(log: EventLog) -> None:
    version = await opened(log)
    a, b, c = (chunk(RUN, message, b'{"n":1}') for message in ("a", "b", "c"))
    await log.publish([live(version, entries=[a, b, c, a, b, c])])
    await log.publish([transaction(version, 2, entries=[a, update(b"{}")])])
    read = await log.read_messages_after(version, positions={"a": sequence_of(1, 2), "b": sequence_of(1, 6)})
    assert [(entry.message_id, entry.sequence, entry.revision) for entry in read.entries] == [
        ("a", sequence_of(1, 5), None),
        ("a", sequence_of(1, 8), 2),
    ]
    assert (read.n, read.revision, read.oldest) == (9, 2, sequence_of(1, 1))
    assert (await log.read_messages_after(version, positions={})).entries == []


async def test_sequences_are_exact_up_to_the_highest_epochs(log: EventLog) -> None:
    version, epoch = new_id("ver"), (1 << 21) - 1
    await log.publish([transaction(version, 1, epoch=epoch, opening=True, reason=ResetReason.LOST)])
    [result] = await log.publish([live(version, *range(5), epoch=epoch)])
    read = await log.read_after(version, sequence=0)
    assert [entry.sequence for entry in read.entries] == [sequence_of(epoch, n) for n in range(1, 8)]
    assert result.last == sequence_of(epoch, 7) == read.last


async def test_scripts_are_loaded_again_when_the_server_forgot_them(log: EventLog, redis: "Redis") -> None:
    versions = [await opened(log), await opened(log)]
    await redis.script_flush()
    results = await log.publish([live(version, "a") for version in versions])
    assert [result.status for result in results] == [PublishStatus.PUBLISHED] * 2
    await redis.script_flush()
    assert (await log.read_after(versions[0], sequence=0)).n == 2


async def test_one_broken_thread_does_not_stop_the_others(log: EventLog, redis: "Redis") -> None:
    good, bad = await opened(log), new_id("ver")
    await redis.set(meta_key(bad), "not a hash")
    outcomes = await log.publish_each([live(bad, "a"), live(good, "a")])
    assert isinstance(outcomes[0], LogError)
    assert outcomes[1].status is PublishStatus.PUBLISHED  # type: ignore[union-attr]
    with pytest.raises(LogError):
        await log.read_after(bad, sequence=0)


@pytest.mark.parametrize("body", [b"", b'{"a":\n1}'])
async def test_what_is_no_compact_json_is_refused_and_changes_nothing(log: EventLog, body: bytes) -> None:
    version = await opened(log)
    with pytest.raises(ValueError, match="not the JSON"):
        await log.publish([live(version, entries=[chunk(RUN, MESSAGE, body)])])
    assert (await log.read_after(version, sequence=0)).n == 1


async def test_a_large_batch_and_a_large_body_go_through(log: EventLog) -> None:
    version = await opened(log)
    big = chunk(RUN, MESSAGE, json.dumps({"delta": "x" * (1 << 20)}).encode())
    [result] = await log.publish([replace(live(version), entries=[*texts(*range(5_000)), big])])
    read = await log.read_after(version, sequence=sequence_of(1, 1))
    assert (result.status, len(read.entries)) == (PublishStatus.PUBLISHED, 5_001)
    assert (read.entries[-1].field, read.entries[-1].body) == big
