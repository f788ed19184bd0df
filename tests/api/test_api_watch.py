"""A watch tells everything once, in order, and says so when it cannot."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from api_parts import BASE, ServedApi, served

from pai.settings import Settings
from support.waiting import wait_until

WATCH = f"{BASE}/threads/t1/watch"


def text(number: int) -> dict[str, Any]:
    return {"type": "text-delta", "id": "x", "delta": f"word{number} "}


async def begin(api: ServedApi, thread_id: str = "t1") -> tuple[str, str, str]:
    """A thread whose run is under way. -> version, run id, id of the message that the model writes."""
    result = await api.send(thread_id)
    messages = (await api.snapshot(thread_id))["messages"]
    return result["version"], result["run"]["runId"], messages[-1]["id"]


async def stream(api: ServedApi, started: tuple[str, str, str], *chunks: dict[str, Any], batch: int) -> int:
    version, run_id, message_id = started
    return await api.stream_chunks(version, *chunks, batch=batch, run_id=run_id, message_id=message_id)


async def test_ready_comes_first_and_names_the_position(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    state = await api.snapshot("t1")
    async with api.watch(WATCH) as events:
        assert events.response.status_code == 200
        headers = events.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        identifier, ready = await events.next()
    assert identifier == ""
    assert ready == {
        "type": "ready",
        "threadId": "t1",
        "version": version,
        "sequence": state["sequence"],
        "revision": state["revision"],
    }


async def test_events_have_the_position_as_their_id_and_no_event_field(api: ServedApi) -> None:
    started = await begin(api)
    version, run_id, message_id = started
    async with api.watch(WATCH) as events:
        _, ready = await events.next()
        await stream(api, started, text(1), text(2), batch=1)
        seen = [await events.next() for _ in range(2)]
    first = ready["sequence"] + 1
    assert [identifier for identifier, _ in seen] == [f"{version}:{first}", f"{version}:{first + 1}"]
    assert seen[0][1] == {
        "type": "chunk",
        "threadId": "t1",
        "version": version,
        "sequence": first,
        "runId": run_id,
        "messageId": message_id,
        "chunk": text(1),
    }
    assert b"event:" not in events.raw


async def test_an_update_carries_its_revision_and_changes(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    async with api.watch(WATCH) as events:
        await events.next()
        await api.client.patch(f"{BASE}/threads/t1", json={"title": "New"})
        _, update = await events.next_of("update")
    assert update["version"] == version
    assert update["revision"] == 2
    assert update["changes"]["thread"]["title"]["value"] == "New"


async def test_a_reader_that_was_cut_resumes_after_its_last_id(api: ServedApi) -> None:
    started = await begin(api)
    async with api.watch(WATCH) as events:
        await events.next()
        last = await stream(api, started, *map(text, range(10)), batch=1)
        whole = await events.until(last)
    for cut, event in enumerate(whole):
        position = f"{event['version']}:{event['sequence']}"
        for how in ({"headers": {"Last-Event-ID": position}}, {"after": position}):
            async with api.watch(WATCH, **how) as events:  # type: ignore[arg-type]
                _, ready = await events.next()
                assert ready["sequence"] == event["sequence"]
                rest = await events.until(last) if cut < len(whole) - 1 else []
            assert rest == whole[cut + 1 :]


async def test_last_event_id_beats_the_query(api: ServedApi) -> None:
    started = await begin(api)
    last = await stream(api, started, *map(text, range(3)), batch=1)
    headers = {"Last-Event-ID": f"{started[0]}:{last - 1}"}
    async with api.watch(WATCH, headers=headers, after=f"{started[0]}:{last - 3}") as events:
        assert (await events.next())[1]["sequence"] == last - 1
        assert (await events.next())[1]["sequence"] == last


async def test_without_a_position_a_watch_begins_now(api: ServedApi) -> None:
    started = await begin(api)
    last = await stream(api, started, *map(text, range(3)), batch=1)
    async with api.watch(WATCH) as events:
        assert (await events.next())[1]["sequence"] == last
        await stream(api, started, text(3), batch=2)
        assert (await events.next())[1]["sequence"] == last + 1


@pytest.mark.parametrize(
    "position", ["garbage", "th_other:5", "{version}:x", "{version}:-1", "{version}:9007199254740993", ":", "{version}"]
)
async def test_a_position_that_means_nothing_is_a_position_that_is_gone(api: ServedApi, position: str) -> None:
    started = await begin(api)
    position = position.replace("{version}", started[0])
    async with api.watch(WATCH, after=position) as events:
        _, ready = await events.next()
        identifier, reset = await events.next()
        assert reset["type"] == "reset"
        assert reset["reason"] == "version"
        assert identifier == f"{started[0]}:{ready['sequence']}"
        last = await stream(api, started, text(1), batch=1)
        assert (await events.next())[1]["sequence"] == last == ready["sequence"] + 1


async def test_a_position_ahead_of_the_log_gets_a_reset(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    async with api.watch(WATCH, after=f"{version}:{2**40}") as events:
        _, ready = await events.next()
        _, reset = await events.next()
    assert (reset["type"], reset["reason"]) == ("reset", "lost")
    assert reset["sequence"] == ready["sequence"]


async def test_a_thread_may_be_watched_before_it_exists(api: ServedApi) -> None:
    async with api.watch(WATCH) as events:
        identifier, ready = await events.next()
        assert identifier == ""
        assert ready == {"type": "ready", "threadId": "t1", "version": None, "sequence": 0, "revision": 0}
        result = await api.send("t1")
        _, first = await events.next()
    assert first["version"] == result["version"]
    assert first["sequence"] == 2**32 + 1
    assert first["revision"] == 1
    assert [message["role"] for message in first["changes"]["messages"]] == ["user", "assistant"]


async def test_other_threads_do_not_end_the_wait_for_a_thread(api: ServedApi) -> None:
    async with api.watch(WATCH) as events:
        await events.next()
        await api.send("t2")
        await api.send("t10")
        result = await api.send("t1")
        assert (await events.next())[1]["version"] == result["version"]


async def test_a_thread_whose_creation_was_never_published_is_found(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_: object) -> None:
        pass

    async with served(settings.model_copy(update={"check_interval": timedelta(milliseconds=100)})) as api:
        monkeypatch.setattr(api.state.runtime.log, "publish_head", lose)
        async with api.watch(WATCH) as events:
            await events.next()
            result = await api.send("t1")
            assert (await events.next())[1]["version"] == result["version"]


async def test_deletion_is_told_and_the_next_incarnation_follows(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    async with api.watch(WATCH) as events:
        _, ready = await events.next()
        await api.client.delete(f"{BASE}/threads/t1")
        identifier, deleted = await events.next_of("deleted")
        assert deleted["version"] == version
        assert deleted["sequence"] == ready["sequence"] + 1
        assert identifier == f"{version}:{deleted['sequence']}"
        result = await api.send("t1")
        _, first = await events.next()
        assert first["version"] == result["version"] != version
        assert first["sequence"] == 2**32 + 1


async def test_a_reader_that_comes_back_to_a_deleted_thread_is_told(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    await api.client.delete(f"{BASE}/threads/t1")
    async with api.watch(WATCH, after=f"{version}:{2**32 + 1}") as events:
        assert (await events.next())[1]["version"] is None
        _, deleted = await events.next()
    assert (deleted["type"], deleted["version"]) == ("deleted", version)


async def test_a_quiet_stream_is_kept_open_by_comments(settings: Settings) -> None:
    async with served(settings.model_copy(update={"keepalive": timedelta(milliseconds=50)})) as api:
        await begin(api)
        for path in (WATCH, f"{BASE}/threads/later/watch", f"{BASE}/heads/watch"):
            async with api.watch(path) as events:
                while events.raw.count(b": keep-alive\n\n") < 3:
                    await events.more()


async def test_all_watchers_get_the_same_bytes(api: ServedApi) -> None:
    started = await begin(api)
    async with api.watch(WATCH) as one, api.watch(WATCH) as two:
        await one.next()
        await two.next()
        last = await stream(api, started, *map(text, range(50)), batch=1)
        await one.until(last)
        await two.until(last)
    assert one.raw == two.raw


async def test_a_reader_that_leaves_leaves_nothing_behind(api: ServedApi) -> None:
    await begin(api)
    tasks = len(asyncio.all_tasks())
    async with api.watch(WATCH) as events, api.watch(f"{BASE}/threads/none/watch") as waiting:
        await events.next()
        await waiting.next()
        assert api.state.hub.watchers == 2
    await wait_until(lambda: api.state.hub.watchers == 0)
    await wait_until(lambda: len(asyncio.all_tasks()) <= tasks, saw=asyncio.all_tasks)


async def test_a_reader_that_does_not_keep_up_is_reset_and_goes_on(settings: Settings) -> None:
    async with served(settings.model_copy(update={"watcher_buffer": 100})) as api:
        started = await begin(api)
        reader, writer = await asyncio.open_connection(*api.address, limit=1024)
        writer.write(f"GET {WATCH} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await reader.readuntil(b'"ready"')
        last = 0
        # The sockets take some megabytes before they take no more.
        for batch in range(1, 401):
            chunks = [{"type": "text-delta", "id": "x", "delta": "x" * 2000} for _ in range(20)]
            last = await stream(api, started, *chunks, batch=batch)
        raw = b""
        while f":{last}\n".encode() not in raw[-100_000:]:
            raw += await reader.read(1 << 20)
        assert b'"type":"reset"' in raw
        assert b'"reason":"overflow"' in raw
        writer.close()


async def test_a_watch_without_a_log_ends_before_ready(settings: Settings) -> None:
    unreachable = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    async with served(unreachable) as api:
        await api.send("t1")
        async with api.watch(WATCH) as events:
            assert events.response.status_code == 200
            await events.end()
    assert events.raw == b""
