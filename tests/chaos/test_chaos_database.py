"""PostgreSQL is cut off in the middle of runs: the API says so, and everything goes on when it is back."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import make_url

from support.chaos_agents import words
from support.cluster import Cluster
from support.proxy import ThreadProxy, proxy_in_thread
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts


@pytest.fixture
def link(chaos: Cluster, postgres_url: str) -> Iterator[ThreadProxy]:
    """The way from the cluster to its database."""
    url = make_url(postgres_url)
    with proxy_in_thread(url.host or "127.0.0.1", url.port or 5432) as proxy:
        chaos.database_url = url.set(port=proxy.port).render_as_string(hide_password=False)
        yield proxy


async def test_runs_go_on_after_the_database_was_away_for_three_seconds(
    chaos: Cluster, http: httpx.AsyncClient, link: ThreadProxy
) -> None:
    api, _ = chaos.pair()
    threads = {
        "text": "tell 20 1 held call once then tell 5 0",
        "tool": "tell 5 0 call hold once then tell 5 0",
        "busy": "tell 60 50 call once then tell 5 0",
    }
    watchers = {thread: Follower(http, [api.url], thread, book=Book()) for thread in threads}
    async with following(*watchers.values()):
        for thread, text in threads.items():
            await say(http, api.url, thread, text)
        for trace in ("half-way", "hold", "once"):
            await wait_until(lambda trace=trace: chaos.traces(trace), saw=chaos.output)  # type: ignore[misc]
        link.cut()
        cut = time.monotonic()
        chaos.go()
        while time.monotonic() - cut < 3:
            began = time.monotonic()
            answer = await say(http, api.url, "new", "tell 1 0")
            assert answer.status_code == 503
            assert answer.json()["code"] == "unavailable"
            assert answer.headers["retry-after"]
            assert time.monotonic() - began < 3
            assert (await http.get(f"{api.url}/threads/text")).status_code == 503
            await asyncio.sleep(0.2)
        link.restore()
        back = time.monotonic()
        assert (await say(http, api.url, "new", "tell 1 0")).status_code == 202
        states = {
            thread: await caught_up(http, f"{api.url}/threads/{thread}", watcher, saw=chaos.output)
            for thread, watcher in watchers.items()
        }
        await caught_up(http, f"{api.url}/threads/new", saw=chaos.output)
        print(f"everything answered {time.monotonic() - back:.1f} s after the database was back")
    assert texts(states["text"]) == [words(20), words(5)]
    assert texts(states["tool"]) == [words(5), words(5)]
    assert texts(states["busy"]) == [words(60), words(5)]
    assert outputs(states["text"]) == outputs(states["busy"]) == ["once m0"]
    assert outputs(states["tool"]) == ["hold m0", "once m1"]
    assert len(chaos.traces("hold")) == 1
    assert len(chaos.traces("once")) == 3
    assert len(chaos.traces("model-*")) == 7, "no step was begun twice"
