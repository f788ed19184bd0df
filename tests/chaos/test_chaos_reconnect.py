"""A watcher that is cut anywhere and comes again has lost nothing and sees nothing twice."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import httpx

from pai.client import BackoffSettings, HttpTransport, ThreadState, create_agent_client, is_optimistic_input_message
from pai.client.http_requests import TIMEOUT, HttpRequests
from pai.client.transport import ThreadWatchInput
from support.chaos_agents import words
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts

STORY = "tell 25 5 call once again once then tell 25 5 call once then tell 10 5"


class CuttingTransport(HttpTransport):
    """Every watch ends after so many events."""

    def __init__(self, http: httpx.AsyncClient, url: str, *, every: int) -> None:
        super().__init__(HttpRequests(http, url, headers=None, timeout=TIMEOUT))
        self._every = every

    async def watch_thread(self, watch: ThreadWatchInput) -> AsyncGenerator[Any, None]:
        async with aclosing(super().watch_thread(watch)) as events:
            left = self._every
            async for event in events:
                yield event
                left -= event["type"] != "ready"
                if not left:
                    return


def said(state: ThreadState) -> list[Any]:
    return [message.raw for message in state.messages if not is_optimistic_input_message(message)]


async def test_watchers_that_are_cut_all_the_time_end_with_the_state_of_the_server(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    other = chaos.start_api()
    api, _ = chaos.pair()
    chaos.go()
    urls = [api.url, other.ready().url]
    book = Book()
    resuming = [Follower(http, urls, "t", book=book, cut_every=every) for every in (1, 2, 3, 5, 13, 34, 500)]
    forgetful = [Follower(http, urls, "t", book=book, cut_every=every, forgetful=True) for every in (1, 3, 8, 21)]
    client = create_agent_client(
        CuttingTransport(http, api.url, every=7), reconnect=BackoffSettings(first=timedelta(milliseconds=5))
    )
    run = await client.thread("t").send("tell 1 0")
    await run.wait_until_idle()
    async with following(*resuming, *forgetful):
        handle = client.thread("t")
        run = await handle.send(STORY)
        final = await run.wait_until_idle()
        state = await caught_up(http, f"{api.url}/threads/t", *resuming, *forgetful, saw=chaos.output)
    assert texts(state) == [words(1), words(25), words(25), words(10)]
    assert outputs(state) == ["once m0", "again m1", "once m2", "once m0"]
    assert said(final) == said(await client.thread("t").refresh())
    assert all(follower.snapshots == 1 for follower in resuming), "resuming needs no snapshot"
    assert len(chaos.traces("once")) == 3


async def test_every_event_of_an_answer_is_a_point_to_resume_from(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, _ = chaos.pair()
    chaos.go()
    thread = f"{api.url}/threads/t"
    whole = Follower(http, [api.url], "t")
    async with following(whole):
        await wait_until(lambda: whole.log)
        await say(http, api.url, "t", STORY)
        state = await caught_up(http, thread, whole, saw=chaos.output)
    events = [event for event in whole.log if event["type"] != "ready"]
    assert [event["sequence"] for event in events] == [2**32 + n for n in range(1, len(events) + 1)]
    assert len(events) > 80
    followers = []
    for cut in range(len(events)):
        resumed = Follower(http, [api.url], "t")
        for event in events[: cut + 1]:
            assert resumed.apply(event)
        assert resumed.sequence == events[cut]["sequence"]
        followers.append(resumed)
    async with following(*followers):
        assert await caught_up(http, thread, *followers, saw=chaos.output) == state
    for cut, resumed in enumerate(followers):
        assert resumed.snapshots == 0
        assert [one["sequence"] for one in resumed.log[1:]] == [one["sequence"] for one in events[cut + 1 :]]
