"""A waiting run that is stopped, deleted, or left by its worker, also while somebody answers it."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Any

import httpx
import pytest

from support.answering import pending_refs, rows, submit, waiting
from support.board import Board, board
from support.cluster import Cluster
from support.strict_provider import accepted_by_all
from support.waiting import wait_until
from support.watching import caught_up, outputs, say

THREADS, ROUNDS = 20, 10
"""Threads at once, and how often each of them is raced on."""


@pytest.fixture
def actions(chaos: Cluster) -> Iterator[Cluster]:
    chaos.environment = {**chaos.environment, "PAI_AGENTS": "support.waiting_agents:registry"}
    yield chaos
    assert "Traceback" not in chaos.output(), chaos.output()


async def stop(http: httpx.AsyncClient, url: str, thread_id: str) -> httpx.Response:
    return await http.post(f"{url}/threads/{thread_id}/stop", json={"reason": "enough"})


async def test_a_worker_that_is_killed_while_a_run_waits_changes_nothing(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    api, victim = actions.pair()
    await say(http, api.url, "t", "call approve pick")
    before, refs = await waiting(http, api.url, "t", count=2, saw=actions.output)
    stored = rows(actions.database_url)
    victim.kill()
    actions.worker()
    await say(http, api.url, "other", "tell 1 0")
    await caught_up(http, f"{api.url}/threads/other", saw=actions.output)
    assert set(stored["step"]) <= set(rows(actions.database_url)["step"])
    assert (await http.get(f"{api.url}/threads/t")).json() == before
    for ref in refs:
        assert (await submit(http, api.url, ref)).status_code == 202
    state = await caught_up(http, f"{api.url}/threads/t", saw=actions.output)
    assert outputs(state) == ["m0 True", {"approved": True}]


async def test_a_waiting_thread_that_is_deleted_is_gone_and_its_id_begins_anew(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    api, _ = actions.pair()
    await say(http, api.url, "t", "call approve pick")
    old, refs = await waiting(http, api.url, "t", count=2, saw=actions.output)
    answers = await asyncio.gather(
        *(submit(http, api.url, ref) for ref in refs), http.delete(f"{api.url}/threads/t"), return_exceptions=False
    )
    assert {answer.status_code for answer in answers[:2]} <= {202, 404}
    assert answers[2].status_code == 204
    assert (await http.get(f"{api.url}/threads/t")).status_code == 404
    assert (await submit(http, api.url, refs[0])).status_code == 404
    assert (await say(http, api.url, "t", "call approve")).status_code == 202
    new, [ref] = await waiting(http, api.url, "t", saw=actions.output)
    assert new["thread"]["version"] != old["thread"]["version"]
    assert (await submit(http, api.url, refs[0])).status_code == 404, "an action of the thread that was"
    assert (await submit(http, api.url, ref)).status_code == 202
    state = await caught_up(http, f"{api.url}/threads/t", saw=actions.output)
    assert outputs(state) == ["m0 True"]
    left = {row[0] for row in rows(actions.database_url)["step"]}
    assert len(left) == 3, "two model steps and a tool step of the new thread"


async def test_an_answer_that_races_a_stop_leaves_a_stopped_run_and_a_thread_that_goes_on(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    other = actions.start_api()
    api, _ = actions.pair()
    urls = [api.url, other.ready().url]
    answered: Counter[bool] = Counter()

    async def soon(request: Awaitable[httpx.Response], *, within: float) -> httpx.Response:
        await asyncio.sleep(random.uniform(0, within))
        return await request

    async def race(seen: Board, thread: str, *, stop_first: bool) -> None:
        """The first is not always the first to arrive."""
        first, second = random.sample(urls, 2)
        sent = await say(http, first, thread, "call approve pick")
        assert sent.status_code == 202, "the next send is accepted"
        since = sent.json()["revision"]
        waits = await seen.reaches(thread, lambda row: len(row.actions) == 2, since=since, saw=actions.output)
        submitted, stopped = await asyncio.gather(
            soon(submit(http, first, random.choice(waits.actions)), within=0.01 if stop_first else 0.003),
            soon(stop(http, second, thread), within=0.003 if stop_first else 0.01),
        )
        assert (stopped.status_code, stopped.json()["run"]["status"]) == (202, "cancelled")
        assert submitted.status_code in (202, 409), submitted.text
        answered[submitted.status_code == 202] += 1

    async def play(seen: Board, thread: str) -> dict[str, Any]:
        for number in range(ROUNDS):
            await race(seen, thread, stop_first=number % 2 == 0)
        since = (await say(http, urls[0], thread, "tell 1 0")).json()["revision"]
        await seen.reaches(thread, lambda row: row.at_rest, since=since, saw=actions.output)
        state: dict[str, Any] = (await http.get(f"{urls[1]}/threads/{thread}")).json()
        assert [run["status"] for run in state["runs"]] == ["cancelled"] * ROUNDS + ["completed"]
        assert not pending_refs(state)
        return state

    async with board(actions.database_url) as seen:
        states = await asyncio.gather(*(play(seen, f"t{number}") for number in range(THREADS)))
    assert set(answered) == {True, False}, "both orders happened"
    shapes: set[tuple[Any, ...]] = set()
    unlike: list[list[dict[str, Any]]] = []
    for state in states:
        parts = [[part for part in message["parts"] if "toolCallId" in part] for message in state["messages"]]
        assert all(part["state"] in ("output-available", "output-error") for calls in parts for part in calls)
        found = {tuple((part["state"], part.get("errorText")) for part in calls) for calls in parts}
        if not found <= shapes:
            shapes |= found
            unlike.append(state["messages"])

    await accepted_by_all(*unlike)

    def quiet() -> bool:
        steps = rows(actions.database_url)["step"]
        return not any({"running", "pending", "suspended"} & set(step) for step in steps)

    await wait_until(quiet, saw=actions.output)
