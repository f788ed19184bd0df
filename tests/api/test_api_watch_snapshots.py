"""With `snapshot=1` one request draws a page and keeps it right."""

import asyncio
from typing import Any

import pytest
from api_parts import BASE, EventReader, ServedApi, served
from test_api_watch import WATCH, begin, stream, text

from pai.engine import api as engine
from pai.engine.runtime import Caller
from pai.fold import Fold
from pai.settings import Settings
from pai_api.identity.anonymous import ANONYMOUS
from support.servers import PrivateRedis


class Page:
    """What a reader of snapshots and events shows: it knows no other request."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.positions: list[tuple[str, int]] = []
        self._folds: dict[str, Fold] = {}

    async def read(self, events: EventReader) -> str:
        _, event = await events.next()
        match event["type"]:
            case "snapshot":
                self._take(event["state"])
            case "chunk":
                self._advance(event)
                self._folds[event["messageId"]].apply(event["chunk"])
            case "update":
                self._advance(event)
                self._update(event["changes"])
        return str(event["type"])

    def _take(self, state: dict[str, Any]) -> None:
        self.state = state
        self._folds = {
            message["id"]: Fold(message, state["folding"].get(message["id"])) for message in state["messages"]
        }
        self._note(state["thread"]["version"], state["sequence"])

    def _advance(self, event: dict[str, Any]) -> None:
        version, sequence = self.positions[-1]
        assert (event["version"], event["sequence"]) == (version, sequence + 1)
        self._note(version, sequence + 1)

    def _note(self, version: str, sequence: int) -> None:
        if self.positions and self.positions[-1][0] == version:
            assert sequence >= self.positions[-1][1], "a state older than what was sent"
        self.positions.append((version, sequence))

    def _update(self, changes: dict[str, Any]) -> None:
        for message in changes.get("messages", ()):
            if "parts" in message:
                self._folds[message["id"]] = Fold(
                    {key: value for key, value in message.items() if key != "folding"}, message.get("folding")
                )
        if "thread" in changes:
            self.state["thread"] = changes["thread"]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [fold.message for fold in self._folds.values()]  # type: ignore[misc]


START = ({"type": "start-step"}, {"type": "text-start", "id": "x"})


async def test_a_snapshot_follows_ready_when_no_position_was_given(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    async with api.watch(WATCH, snapshot="1") as events:
        _, ready = await events.next()
        identifier, snapshot = await events.next()
    assert set(snapshot) == {"type", "state"}
    assert snapshot["state"] == await api.snapshot("t1")
    assert identifier == f"{version}:{snapshot['state']['sequence']}"
    assert snapshot["state"]["sequence"] >= ready["sequence"]


async def test_a_position_that_holds_needs_no_snapshot(api: ServedApi) -> None:
    started = await begin(api)
    last = await stream(api, started, *map(text, range(3)), batch=1)
    async with api.watch(WATCH, snapshot="1", after=f"{started[0]}:{last - 1}") as events:
        assert (await events.next())[1]["type"] == "ready"
        _, event = await events.next()
    assert (event["type"], event["sequence"]) == ("chunk", last)


async def test_a_position_that_is_gone_gets_a_snapshot_and_no_reset(api: ServedApi) -> None:
    version, _, _ = await begin(api)
    for position in (f"{version}:{2**40}", "th_other:5", "garbage"):
        async with api.watch(WATCH, snapshot="1", after=position) as events:
            await events.next()
            assert (await events.next())[1]["type"] == "snapshot"
        assert b'"reset"' not in events.raw


async def test_a_page_that_joins_in_mid_answer_misses_and_repeats_nothing(api: ServedApi) -> None:
    started = await begin(api)
    stop = asyncio.Event()

    async def write() -> None:
        await stream(api, started, *START, batch=1)
        batch = 2
        while not stop.is_set():
            await stream(api, started, text(batch), batch=batch)
            batch += 1

    writing = asyncio.create_task(write())
    try:
        for _ in range(10):
            page = Page()
            async with api.watch(WATCH, snapshot="1") as events:
                while len(page.positions) < 20:
                    await page.read(events)
            shown = page.messages[-1]["parts"][-1]["text"].split()
            assert shown == [f"word{number}" for number in range(2, 2 + len(shown))]
            assert shown
    finally:
        stop.set()
        await writing


async def test_a_snapshot_is_never_older_than_a_position_that_was_sent(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = await begin(api)
    read = engine.get_state
    [agent, _] = api.state.runtime.registry
    states = [await read(api.state.runtime, Caller(ANONYMOUS, agent), "t1")] * 3

    async def sometimes_old(*args: Any) -> Any:
        return states.pop() if states else await read(*args)

    monkeypatch.setattr(engine, "get_state", sometimes_old)
    last = await stream(api, started, *START, text(1), batch=1)
    async with api.watch(WATCH, snapshot="1") as events:
        _, ready = await events.next()
        _, snapshot = await events.next()
    assert not states
    assert ready["sequence"] == last == snapshot["state"]["sequence"]


async def test_a_page_may_wait_for_its_thread(api: ServedApi) -> None:
    page = Page()
    async with api.watch(WATCH, snapshot="1") as events:
        assert await page.read(events) == "ready"
        result = await api.send("t1")
        assert await page.read(events) == "snapshot"
        assert page.state["thread"]["version"] == result["version"]
        await api.client.delete(f"{BASE}/threads/t1")
        while await page.read(events) != "deleted":
            pass
        again = await api.send("t1")
        assert await page.read(events) == "snapshot"
        assert page.state["thread"]["version"] == again["version"] != result["version"]


async def test_a_log_that_is_lost_becomes_a_newer_snapshot(settings: Settings, own_redis: PrivateRedis) -> None:
    async with served(settings.model_copy(update={"redis_url": own_redis.url})) as api:
        started = await begin(api)
        page = Page()
        async with api.watch(WATCH, snapshot="1") as events:
            while await page.read(events) != "snapshot":
                pass
            await stream(api, started, *START, text(1), batch=1)
            for _ in range(3):
                await page.read(events)
            await api.state.runtime.log.redis.flushall()
            await api.client.patch(f"{BASE}/threads/t1", json={"title": "after the flood"})
            while await page.read(events) != "snapshot":
                pass
        assert page.state["revision"] == 2
        assert page.state["thread"]["title"]["value"] == "after the flood"
        assert b'"reset"' not in events.raw
