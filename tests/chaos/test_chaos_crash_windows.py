"""A process dies at the worst moments there are; the thread and everybody who watches it end right."""

import time
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest

from support.chaos_agents import words
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts

WITHIN = 12.0
TURN = "tell 20 1 call once then tell 20 1"


POINTS = (
    "claim.before_start",
    "step.before_start:2",
    "model.before_commit",
    "model.before_commit:2",
    "tool.before_commit",
    "commit.before_publish",
    "commit.before_publish:2",
    "commit.before_publish:3",
    "publish.before_dispatch",
    "publish.before_dispatch:3",
)


async def test_a_worker_may_die_anywhere(chaos: Cluster, http: httpx.AsyncClient) -> None:
    """Every point has a thread and a worker of its own, and one worker goes on with all of them."""
    chaos.environment = {**chaos.environment, "PAI_AGENTS": "support.chaos_agents:apart"}
    chaos.start_worker(PAI_QUEUES="elsewhere")
    api = chaos.start_api()
    victims = {point: chaos.start_worker(PAI_QUEUES=f"q{n}", PAI_FAULTS=point) for n, point in enumerate(POINTS)}
    urls = {point: api.ready().url.replace("/main", f"/q{number}") for number, point in enumerate(POINTS)}
    watchers = {point: Follower(http, [urls[point]], "t", book=Book()) for point in POINTS}
    async with following(*watchers.values()):
        for point in POINTS:
            victims[point].ready()
            await say(http, urls[point], "t", TURN)
        await wait_until(lambda: not any(victim.alive for victim in victims.values()), saw=chaos.output)
        died = time.monotonic()
        chaos.worker(PAI_QUEUES=",".join(f"q{number}" for number in range(len(POINTS))))
        for number, point in enumerate(POINTS):
            state = await caught_up(http, f"{urls[point]}/threads/t", watchers[point], saw=chaos.output)
            assert texts(state) == [words(20), words(20)], point
            assert [run["status"] for run in state["runs"]] == ["completed"], point
            [output] = outputs(state)
            begun = len(chaos.traces(f"q{number}-once"))
            # A step that a commit created for the dead worker may have been begun, as far as anybody can know.
            assert (output == "once m0" and begun == 1) or ("effect is unknown" in output and begun <= 1), point
        took = time.monotonic() - died
    print(f"all went on within {took:.1f} s")
    assert took < WITHIN


async def test_a_take_over_that_dies_between_its_fence_and_its_commit_is_done_by_the_next(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    api, victim = chaos.pair()
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 20 0 held")
        await wait_until(lambda: chaos.traces("half-way"), saw=chaos.output)
        second = chaos.worker(PAI_FAULTS="fence.before_commit", PAI_QUEUES="elsewhere")
        victim.kill()
        await wait_until(lambda: not second.alive, saw=chaos.output)
        chaos.worker()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    assert texts(state) == [words(20)]


async def test_a_stop_that_dies_between_its_fence_and_its_commit_leaves_a_run_that_ends(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    dying = chaos.start_api(PAI_FAULTS="fence.before_commit")
    api, _ = chaos.pair()
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 20 0 held")
        await wait_until(lambda: chaos.traces("half-way"), saw=chaos.output)
        with pytest.raises(httpx.HTTPError):
            await http.post(f"{dying.ready().url}/threads/t/stop", json={})
        chaos.go()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    assert texts(state) == [words(20)]


async def test_a_message_is_answered_though_the_api_died_while_it_was_accepted(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    cases = [
        (point, known) for point in ("commit.before_publish", "publish.before_dispatch") for known in (True, False)
    ]
    dying = [chaos.start_api(PAI_FAULTS=point) for point, _ in cases]
    api, _ = chaos.pair()
    watchers = [Follower(http, [api.url], f"t{number}", book=Book()) for number in range(len(cases))]
    async with following(*watchers):
        await wait_until(lambda: all(watcher.log for watcher in watchers))
        for number, (_, known) in enumerate(cases):
            if known:
                await say(http, api.url, f"t{number}", "tell 1 0")
                await caught_up(http, f"{api.url}/threads/t{number}", watchers[number], saw=chaos.output)
        began = time.monotonic()
        for number, node in enumerate(dying):
            node.ready()
            with suppress(httpx.HTTPError):
                assert (await say(http, node.url, f"t{number}", TURN, messageId="m")).status_code == 202
        await wait_until(lambda: not any(node.alive for node in dying))
        for number, (point, known) in enumerate(cases):
            assert (await say(http, api.url, f"t{number}", TURN, messageId="m")).status_code == 200
            state = await caught_up(http, f"{api.url}/threads/t{number}", watchers[number], saw=chaos.output)
            assert texts(state) == [words(1)] * known + [words(20), words(20)], point
        took = time.monotonic() - began
    print(f"all were answered within {took:.1f} s")
    assert took < WITHIN
    assert len(chaos.traces("once")) == len(cases)


async def test_watchers_hear_of_a_deletion_whose_process_died_before_it_said_so(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    dying = chaos.start_api(PAI_FAULTS="delete.before_publish")
    api, _ = chaos.pair()
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 20 0 held")
        await wait_until(lambda: chaos.traces("half-way"), saw=chaos.output)
        with pytest.raises(httpx.HTTPError):
            await http.delete(f"{dying.ready().url}/threads/t")
        await wait_until(
            lambda: watcher.log[-1]["type"] == "deleted", timeout=timedelta(seconds=WITHIN), saw=chaos.output
        )
        gone = watcher.log[-1]["version"]
        chaos.go()
        assert (await say(http, api.url, "t", "tell 3 0")).status_code == 202
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    assert state["thread"]["version"] != gone
    assert texts(state) == [words(3)]
