"""The list of threads can be watched."""

from api_parts import BASE, ServedApi, served

from pai.settings import Settings
from support.servers import PrivateRedis

HEADS = f"{BASE}/heads/watch"


async def test_created_changed_and_removed_threads_are_told(api: ServedApi) -> None:
    async with api.watch(HEADS) as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        assert await events.next() == ("", {"type": "ready"})
        result = await api.send("t1")
        _, created = await events.next()
        assert created["type"] == "head"
        assert created["summary"]["threadId"] == "t1"
        assert created["summary"]["version"] == result["version"]
        await api.client.patch(f"{BASE}/threads/t1", json={"title": "New"})
        _, renamed = await events.next()
        assert renamed["summary"]["title"]["value"] == "New"
        assert renamed["summary"]["revision"] == 2
        await api.client.delete(f"{BASE}/threads/t1")
        assert (await events.next_of("removed"))[1] == {
            "type": "removed",
            "threadId": "t1",
            "version": result["version"],
        }
    assert b"id:" not in events.raw


async def test_a_head_is_what_the_list_says(api: ServedApi) -> None:
    async with api.watch(HEADS) as events:
        await events.next()
        await api.send("t1", thread={"category": "work"})
        _, head = await events.next()
    assert [head["summary"]] == (await api.client.get(f"{BASE}/threads")).json()["items"]


async def test_a_reader_that_may_have_missed_something_is_told_to_read_the_list_again(
    settings: Settings, own_redis: PrivateRedis
) -> None:
    async with served(settings.model_copy(update={"redis_url": own_redis.url})) as api, api.watch(HEADS) as events:
        await events.next()
        own_redis.stop()
        await api.send("t1")
        own_redis.start()
        await events.next_of("ready")
        result = await api.send("t2")
        assert (await events.next_of("head"))[1]["summary"]["version"] == result["version"]
