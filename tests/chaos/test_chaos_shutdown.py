"""A process that is told to stop does so soon, and hands over what it has."""

import signal
import time
from datetime import timedelta

import httpx

from pai.client import create_agent_client, create_http_transport
from support.chaos_agents import words
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts


async def test_a_worker_that_is_told_to_stop_hands_its_steps_over_within_seconds(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    # With leases so long that nothing is handed over by their end.
    chaos.environment = {**chaos.environment, "PAI_LEASE": "60"}
    api, first = chaos.pair()
    threads = {
        "text": "tell 40 0 held",
        "short": "tell 40 20 call once then tell 5 0",
        "twice": "call again then tell 5 0",
        "tool": "call hold once then tell 5 0",
    }
    book = Book()
    watchers = {thread: Follower(http, [api.url], thread, book=book) for thread in threads}
    async with following(*watchers.values()):
        for thread, text in threads.items():
            await say(http, api.url, thread, text)
        for trace in ("half-way", "again", "hold", "once"):
            await wait_until(lambda trace=trace: chaos.traces(trace), saw=chaos.output)  # type: ignore[misc]
        chaos.worker()
        first.terminate()
        told = time.monotonic()
        states = {
            thread: await caught_up(http, f"{api.url}/threads/{thread}", watcher, saw=chaos.output)
            for thread, watcher in watchers.items()
        }
        print(f"handed over and done {time.monotonic() - told:.1f} s after the signal")
        await wait_until(lambda: not first.alive)
    assert first.exit_code == 0
    assert texts(states["text"]) == [words(40)]
    assert texts(states["short"]) == [words(40), words(5)]
    assert outputs(states["short"]) == ["once m0"]
    assert outputs(states["twice"]) == ["again m0"]
    interrupted, done = outputs(states["tool"])
    assert "effect is unknown" in interrupted
    assert done == "once m1"
    assert len(chaos.traces("hold")) == 1
    assert len(chaos.traces("once")) == 2
    assert [run["status"] for state in states.values() for run in state["runs"]] == ["completed"] * 4


async def test_steps_that_end_in_time_are_not_handed_over(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, first = chaos.pair(PAI_DRAIN_SECONDS="10")
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 20 0 held call hold then tell 5 0")
        await wait_until(lambda: chaos.traces("half-way"), saw=chaos.output)
        first.terminate()
        second = chaos.worker()
        chaos.go()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
        await wait_until(lambda: not first.alive)
    assert first.exit_code == 0
    assert texts(state) == [words(20), words(5)]
    assert outputs(state) == ["hold m0"]
    assert chaos.traces("hold") == [second.pid]
    assert sorted(chaos.traces("model-*")) == sorted([first.pid, second.pid])


async def test_an_api_that_is_told_to_stop_ends_its_watches_and_they_go_on_at_another(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    other = chaos.start_api()
    api, _ = chaos.pair()
    other.ready()
    watchers = [Follower(http, [api.url, other.url], "t", book=Book()) for _ in range(5)]
    async with following(*watchers):
        await wait_until(lambda: all(watcher.log for watcher in watchers))
        await say(http, api.url, "t", "tell 40 0 held call once then tell 5 0")
        await wait_until(lambda: "w19" in str(watchers[0].shown["messages"]), saw=chaos.output)
        api.terminate()
        told = time.monotonic()
        await wait_until(lambda: not api.alive, timeout=timedelta(seconds=10), saw=chaos.output)
        print(f"the API ended after {time.monotonic() - told:.1f} s")
        chaos.go()
        state = await caught_up(http, f"{other.url}/threads/t", *watchers, saw=chaos.output)
    assert api.exit_code in (0, -signal.SIGTERM), "uvicorn passes the signal on when it is done"
    assert texts(state) == [words(40), words(5)]
    assert all(watcher.snapshots == 0 for watcher in watchers)


async def test_a_client_goes_on_when_its_api_process_was_replaced(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, _ = chaos.pair()
    client = create_agent_client(create_http_transport(api.url, http_client=http))
    thread = client.thread("t")
    run = await thread.send("tell 40 0 held call once then tell 5 0")
    async with thread.watch() as states:
        async for state in states:
            if state.messages[1:] and "w19" in state.messages[-1].text:
                break
        api.kill()
        chaos.start_api(port=api.port).ready()
        chaos.go()
        final = await run.wait_until_idle()
    assert [message.text for message in final.messages[1:]] == [words(40), words(5)]
    assert len(chaos.traces("once")) == 1
