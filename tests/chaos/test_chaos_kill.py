"""A worker that dies or freezes: another one goes on with its steps, and nothing of it is left."""

import time
from datetime import timedelta

import httpx

from support.chaos_agents import words
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts

WITHIN = timedelta(seconds=12)
"""The lease, and one round of the sweep."""


async def test_another_worker_goes_on_with_the_steps_of_a_killed_one_within_twelve_seconds(
    patient: Cluster, http: httpx.AsyncClient
) -> None:
    api, victim = patient.pair()
    told = {
        "text": "tell 40 1 held",
        "twice": "tell 10 1 call again then tell 5 0",
        "once": "tell 10 1 call hold once then tell 5 0",
    }
    book = Book()
    watchers = {thread: Follower(http, [api.url], thread, book=book) for thread in told}
    async with following(*watchers.values()):
        for thread, text in told.items():
            assert (await say(http, api.url, thread, text)).status_code == 202
        for trace in ("half-way", "again", "hold", "once"):
            await wait_until(lambda trace=trace: patient.traces(trace), saw=patient.output)  # type: ignore[misc]
        await wait_until(lambda: "w19" in str(watchers["text"].shown["messages"]))
        rescuer = patient.worker()
        victim.kill()
        died = time.monotonic()
        await wait_until(
            lambda: {rescuer.pid} < set(patient.traces("model-*")) & {*patient.traces("again-*"), victim.pid},
            timeout=WITHIN,
            saw=patient.output,
        )
        print(f"another worker went on after {time.monotonic() - died:.1f} s")
        states = {
            thread: await caught_up(http, f"{api.url}/threads/{thread}", watcher, saw=patient.output)
            for thread, watcher in watchers.items()
        }
    assert texts(states["text"]) == [words(40)]
    assert texts(states["once"]) == texts(states["twice"]) == [words(10), words(5)]
    assert outputs(states["twice"]) == ["again m0"]
    lost, kept = outputs(states["once"])
    assert "effect is unknown" in lost
    assert kept == "once m1"
    assert patient.traces("hold") == [victim.pid], "a call with one attempt ran once"
    assert len(patient.traces("once")) == 1
    assert sorted(patient.traces("again-*")) == sorted([victim.pid, rescuer.pid])
    chunks = [event["chunk"]["type"] for event in watchers["text"].log if event["type"] == "chunk"]
    assert chunks.count("reset-step") == 1, "watchers are told what to discard"
    assert [run["status"] for state in states.values() for run in state["runs"]] == ["completed"] * 3


async def test_nothing_of_a_worker_that_was_frozen_past_its_lease_appears_anywhere(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    rescuer = chaos.start_worker(PAI_QUEUES="elsewhere")
    api, zombie = chaos.pair()
    rescuer.ready()
    threads = {"text": "tell 40 0 held", "tool": "call hold then tell 5 0", "twice": "call again then tell 5 0"}
    book = Book()
    watchers = {thread: Follower(http, [api.url], thread, book=book) for thread in threads}
    async with following(*watchers.values()):
        for thread, text in threads.items():
            await say(http, api.url, thread, text)
        for trace in ("half-way", "hold", "again"):
            await wait_until(lambda trace=trace: chaos.traces(trace), saw=chaos.output)  # type: ignore[misc]
        await wait_until(lambda: "w19" in str(watchers["text"].shown["messages"]))
        zombie.freeze()
        chaos.worker()
        before = {
            thread: await caught_up(http, f"{api.url}/threads/{thread}", watcher, saw=chaos.output)
            for thread, watcher in watchers.items()
        }
        seen = dict(book.events)
        chaos.go()
        zombie.thaw()
        assert (await say(http, api.url, "new", "call once again hold")).status_code == 202
        fresh = await caught_up(http, f"{api.url}/threads/new", saw=chaos.output)
        # Whatever the zombie still wanted to say, it has said before it ends.
        zombie.terminate()
        await wait_until(lambda: not zombie.alive, saw=chaos.output)
        after = {
            thread: await caught_up(http, f"{api.url}/threads/{thread}", watcher, saw=chaos.output)
            for thread, watcher in watchers.items()
        }
    for thread, state in before.items():
        # A snapshot between a commit and its publication is of a lower sequence, with the same content.
        for name in state.keys() - {"sequence"}:
            assert after[thread][name] == state[name], f"{thread}: {name}"
    assert book.events == seen
    assert outputs(fresh) == ["once m0", "again m1", "hold m2"]
    assert texts(before["text"]) == [words(40)]
    assert "effect is unknown" in outputs(before["tool"])[0]
    assert outputs(before["twice"]) == ["again m0"]


async def test_a_run_whose_worker_dies_between_two_steps_goes_on(chaos: Cluster, http: httpx.AsyncClient) -> None:
    chaos.start_worker(PAI_QUEUES="elsewhere")
    api, victim = chaos.pair(PAI_FAULTS="step.before_start:3")
    watcher = Follower(http, [api.url], "t", book=Book())
    async with following(watcher):
        await say(http, api.url, "t", "tell 5 0 call once then tell 5 0 call once then tell 5 0")
        await wait_until(lambda: not victim.alive)
        chaos.worker()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    assert texts(state) == [words(5)] * 3
    assert outputs(state) == ["once m0", "once m0"]
    assert len(chaos.traces("once")) == 2
