"""Redis loses everything, goes away, or stops answering: no run is lost, and every watcher ends in the right state."""

import asyncio
import time

import httpx

from support.chaos_agents import words
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts

PROMPT = 4.0
"""Seconds in which a request is answered whatever is the matter with Redis."""


async def test_a_flush_in_mid_answer_and_another_one_lose_nothing(chaos: Cluster, http: httpx.AsyncClient) -> None:
    # Without the sweep, so that whatever runs was dispatched in the first place.
    chaos.environment = {**chaos.environment, "PAI_SWEEP_INTERVAL": "600"}
    other = chaos.start_api()
    api, _ = chaos.pair()
    other.ready()
    chaos.go()
    book = Book()
    watchers = [
        Follower(http, urls, "t", book=book, cut_every=every)
        for urls in ([api.url], [other.url])
        for every in (None, 7)
    ]
    idle = Follower(http, [api.url], "idle", book=book)
    async with following(*watchers, idle):
        await say(http, api.url, "idle", "tell 3 0")
        await caught_up(http, f"{api.url}/threads/idle", idle, saw=chaos.output)
        await say(http, api.url, "t", "tell 150 20 call once again then tell 50 5")
        await wait_until(lambda: "w30 " in str(watchers[0].shown["messages"]), saw=chaos.output)
        chaos.redis.flush()
        flushed = time.monotonic()
        await wait_until(lambda: time.monotonic() - flushed > 1)
        assert "w149" not in str(watchers[0].shown["messages"])
        chaos.redis.flush()
        state = await caught_up(http, f"{api.url}/threads/t", *watchers, saw=chaos.output)
        await say(http, api.url, "idle", "tell 3 0")
        await caught_up(http, f"{api.url}/threads/idle", idle, saw=chaos.output)
    assert texts(state) == [words(150), words(50)]
    assert outputs(state) == ["once m0", "again m1"]
    assert len(chaos.traces("once")) == 1
    assert len(chaos.traces("model-*")) == 4, "no step was begun twice"
    assert all(watcher.snapshots >= 2 for watcher in watchers)
    assert len({sequence >> 32 for version, sequence in book.events if version == state["thread"]["version"]}) == 3


async def test_messages_that_are_sent_while_redis_is_down_run_when_it_is_back(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    api, _ = chaos.pair()
    book = Book()
    watcher = Follower(http, [api.url], "t0", book=book)
    running = Follower(http, [api.url], "running", book=book)
    async with following(watcher, running):
        await say(http, api.url, "running", "tell 20 1 held call once then tell 5 0")
        await wait_until(lambda: "w9 " in str(running.shown["messages"]), saw=chaos.output)
        chaos.redis.stop()
        down = time.monotonic()
        chaos.go()
        number = 0
        while time.monotonic() - down < 5:
            began = time.monotonic()
            answer = await say(http, api.url, f"t{number}", "tell 5 0 call once then tell 5 0")
            assert answer.status_code == 202
            assert time.monotonic() - began < PROMPT
            number += 1
            await asyncio.sleep(0.25)
        chaos.redis.start()
        back = time.monotonic()
        state = await caught_up(http, f"{api.url}/threads/running", running, saw=chaos.output)
        await caught_up(http, f"{api.url}/threads/t0", watcher, saw=chaos.output)
        for thread in range(number):
            other = await caught_up(http, f"{api.url}/threads/t{thread}", saw=chaos.output)
            assert texts(other) == [words(5), words(5)]
        print(f"all answered {time.monotonic() - back:.1f} s after Redis was back")
    assert texts(state) == [words(20), words(5)]
    assert len(chaos.traces("once")) == number + 1


async def test_a_run_is_stopped_while_redis_is_down(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, _ = chaos.pair()
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 20 1 held")
        await wait_until(lambda: "w9 " in str(watcher.shown["messages"]), saw=chaos.output)
        chaos.redis.stop()
        began = time.monotonic()
        answer = await http.post(f"{api.url}/threads/t/stop", json={})
        assert answer.status_code == 202
        assert time.monotonic() - began < PROMPT
        assert answer.json()["run"]["status"] == "cancelled"
        chaos.go()
        chaos.redis.start()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
        await say(http, api.url, "t", "tell 5 0")
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    assert [run["status"] for run in state["runs"]] == ["cancelled", "completed"]
    assert texts(state)[-1] == words(5)


async def test_a_redis_that_does_not_answer_delays_no_mutation(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, _ = chaos.pair()
    watcher = Follower(http, [api.url], "running", book=Book())
    async with following(watcher):
        await say(http, api.url, "running", "tell 20 1 held")
        await wait_until(lambda: "w9 " in str(watcher.shown["messages"]), saw=chaos.output)
        chaos.redis.freeze()
        took: dict[str, float] = {}
        for number in range(8):
            began = time.monotonic()
            assert (await say(http, api.url, f"t{number}", "tell 5 0")).status_code == 202
            took[f"send {number}"] = time.monotonic() - began
        began = time.monotonic()
        assert (await http.post(f"{api.url}/threads/running/stop", json={})).status_code == 202
        took["stop"] = time.monotonic() - began
        began = time.monotonic()
        assert (await http.get(f"{api.url}/threads/t0")).status_code == 200
        took["snapshot"] = time.monotonic() - began
        began = time.monotonic()
        assert (await http.delete(f"{api.url}/threads/t7")).status_code == 204
        took["delete"] = time.monotonic() - began
        chaos.redis.thaw()
        print({name: round(seconds, 2) for name, seconds in took.items()})
        chaos.go()
        state = await caught_up(http, f"{api.url}/threads/running", watcher, saw=chaos.output)
        for number in range(7):
            other = await caught_up(http, f"{api.url}/threads/t{number}", saw=chaos.output)
            assert texts(other) == [words(5)]
    assert [run["status"] for run in state["runs"]] == ["cancelled"]
    assert max(took.values()) < PROMPT, took
