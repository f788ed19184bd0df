"""The messages of steps that travel with publications: Celery's own, in the lists that its workers read."""

import json
from base64 import b64decode
from typing import Any

import pytest
from log_parts import opened, transaction
from redis.asyncio import Redis

from pai.broker import create_celery
from pai.log.batches import PublishStatus
from pai.log.connection import connect
from pai.log.embedded import EmbeddedRedis
from pai.log.event_log import EventLog
from pai.settings import Settings
from pai.step_message import STEP_TASK, queue_key, step_message

IDS = {"id", "root_id", "correlation_id", "delivery_tag", "reply_to", "origin"}
"""What differs from message to message, or says which process sent it."""


def taken_apart(message: bytes) -> Any:
    """The body is JSON in base64."""
    envelope = json.loads(message)
    return {**envelope, "body": json.loads(b64decode(envelope["body"]))}


def without_ids(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: "an id" if key in IDS else without_ids(item) for key, item in value.items()}


async def test_the_message_of_a_step_is_the_one_that_celery_sends(embedded: EmbeddedRedis) -> None:
    app = create_celery(Settings(broker_url=embedded.broker_url), queues=["pai-gpu"])
    app.send_task(STEP_TASK, args=["step_1"], queue="pai-gpu", ignore_result=True)
    app.close()
    async with connect(embedded.url()) as redis:
        [sent] = await redis.lrange(queue_key("pai-gpu"), 0, -1)
        await redis.flushdb()
    made = taken_apart(step_message("step_1", "pai-gpu"))
    assert without_ids(made) == without_ids(taken_apart(sent))
    assert made["headers"]["id"] == made["headers"]["root_id"] == made["properties"]["correlation_id"]
    assert made["headers"]["id"] != taken_apart(step_message("step_1", "pai-gpu"))["headers"]["id"]


@pytest.fixture
def pushes() -> list[tuple[bytes, bytes]]:
    return [(b"list:a", b"1"), (b"list:b", b"2"), (b"list:a", b"3")]


async def pushed(redis: "Redis") -> dict[bytes, list[bytes]]:
    """Both lists, the oldest value first, as workers take them."""
    return {key: (await redis.lrange(key, 0, -1))[::-1] for key in (b"list:a", b"list:b")}


async def test_messages_travel_with_a_publication_in_order(
    log: EventLog, redis: "Redis", pushes: list[tuple[bytes, bytes]]
) -> None:
    await log.publish([transaction(await opened(log), 2, pushes=pushes)])
    assert await pushed(redis) == {b"list:a": [b"1", b"3"], b"list:b": [b"2"]}


async def test_messages_wait_for_the_transaction_before_theirs(
    log: EventLog, redis: "Redis", pushes: list[tuple[bytes, bytes]]
) -> None:
    version = await opened(log)
    batch = transaction(version, 3, pushes=pushes)
    [result] = await log.publish([batch])
    assert (result.status, await pushed(redis)) == (PublishStatus.EARLY, {b"list:a": [], b"list:b": []})
    await log.publish([transaction(version, 2), batch])
    assert await pushed(redis) == {b"list:a": [b"1", b"3"], b"list:b": [b"2"]}


@pytest.mark.parametrize("what", ["lost", "dropped", "deleted"])
async def test_messages_go_whatever_becomes_of_the_entries(
    log: EventLog, redis: "Redis", pushes: list[tuple[bytes, bytes]], what: str
) -> None:
    version = await opened(log)
    if what == "lost":
        await redis.flushdb()
    elif what == "deleted":
        await log.delete(version)
    revision = 1 if what == "dropped" else 2
    [result] = await log.publish([transaction(version, revision, pushes=pushes)])
    assert (result.status, await pushed(redis)) == (what, {b"list:a": [b"1", b"3"], b"list:b": [b"2"]})
