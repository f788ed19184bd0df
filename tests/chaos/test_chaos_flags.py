"""A process dies when it has committed what one thread says to another, before it is said: somebody else says it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from support.answering import records
from support.chaos_agents import words
from support.cluster import Cluster, Node
from support.family_agents import PARENTS
from support.waiting import wait_until
from support.watching import Book, Follower, caught_up, following, outputs, say, texts

DIES = {"PAI_FAULTS": "flag.before_delivery"}


@pytest.fixture
def relatives(chaos: Cluster) -> Iterator[Cluster]:
    chaos.environment = {**chaos.environment, "PAI_AGENTS": "support.family_agents:registry"}
    yield chaos
    assert "Traceback" not in chaos.output(), chaos.output()


def of(node: Node, agent: str) -> str:
    return node.url.replace("/main", f"/{agent}")


def children(cluster: Cluster) -> list[dict[str, Any]]:
    return [thread for thread in records(cluster.database_url, "thread") if thread["agent"] == "helper"]


def runs_of(cluster: Cluster, thread: dict[str, Any]) -> list[str]:
    runs = [run for run in records(cluster.database_url, "run") if run["version"] == thread["version"]]
    return [run["status"] for run in sorted(runs, key=lambda run: run["position"])]


async def said_to_all(cluster: Cluster) -> None:
    await wait_until(lambda: not records(cluster.database_url, "flag"), saw=cluster.output)


async def test_a_child_is_started_and_its_end_is_told_once_whoever_dies(
    relatives: Cluster, http: httpx.AsyncClient
) -> None:
    """The call's worker dies before and after it has created the child, the child's before it tells the parent."""
    api = relatives.start_api()
    victims = {
        "helper": relatives.start_worker(PAI_QUEUES="helper", **DIES),
        "left": relatives.start_worker(PAI_QUEUES="left", PAI_FAULTS="child.before_send"),
        "right": relatives.start_worker(PAI_QUEUES="right", PAI_FAULTS="child.before_done"),
    }
    relatives.worker(PAI_QUEUES="main")
    api.ready()
    watchers = {name: Follower(http, [of(api, name)], "t", book=Book()) for name in PARENTS}
    async with following(*watchers.values()):
        victims["helper"].ready()
        await say(http, of(api, "main"), "t", "call delegate then tell 3 0")
        await wait_until(lambda: not victims["helper"].alive, saw=relatives.output)
        for name in ("left", "right"):
            victims[name].ready()
            await say(http, of(api, name), "t", "call delegate then tell 3 0")
        await wait_until(lambda: not any(victim.alive for victim in victims.values()), saw=relatives.output)
        relatives.worker(PAI_QUEUES="helper,left,right")
        for name in PARENTS:
            state = await caught_up(http, f"{of(api, name)}/threads/t", watchers[name], saw=relatives.output)
            assert outputs(state) == [f"completed {words(4)}".strip()], name
            assert texts(state)[-1] == words(3), name
            assert [run["status"] for run in state["runs"]] == ["completed"], name
            assert len(relatives.traces(f"{name}-result")) == 1, name
    assert [runs_of(relatives, child) for child in children(relatives)] == [["completed"]] * len(PARENTS)
    await said_to_all(relatives)


async def test_relatives_hear_of_a_stop_and_of_a_deletion_whose_process_died_before_it_told_them(
    relatives: Cluster, http: httpx.AsyncClient
) -> None:
    dying = [relatives.start_api(**DIES) for _ in range(4)]
    api, _ = relatives.pair()
    url = of(api, "main")
    calls = {"stopped": "entrust_openly", "gone": "entrust", "parted": "entrust_openly", "bereft": "entrust_openly"}
    for thread, call in calls.items():
        await say(http, url, thread, f"call {call} then tell 3 0")
    await wait_until(lambda: len(relatives.traces("half-way")) == len(calls), saw=relatives.output)

    def child_of(thread: str) -> dict[str, Any] | None:
        version = parents[thread]["version"]
        return next((one for one in children(relatives) if one["version"] == made[version]["version"]), None)

    parents = {row["thread_id"]: row for row in records(relatives.database_url, "thread") if row["agent"] == "main"}
    made = {child["parent_version"]: child for child in children(relatives)}
    child_id = made[parents["bereft"]["version"]]["thread_id"]
    ends = {
        "stopped": ("POST", "{}/threads/stopped/stop"),
        "gone": ("DELETE", "{}/threads/gone"),
        "parted": ("DELETE", "{}/threads/parted"),
        "bereft": ("DELETE", "{}/threads/" + child_id),
    }
    for node, (thread, (method, path)) in zip(dying, ends.items(), strict=True):
        base = of(node.ready(), "helper" if thread == "bereft" else "main")
        with suppress(httpx.HTTPError):
            await http.request(method, path.format(base), json={} if method == "POST" else None)
        await wait_until(lambda node=node: not node.alive, saw=relatives.output)  # type: ignore[misc]
    await said_to_all(relatives)
    stopped, parted = child_of("stopped"), child_of("parted")
    assert stopped is not None
    assert parted is not None
    assert child_of("gone") is None
    assert child_of("bereft") is None
    for child in (stopped, parted):
        assert (child["status"], runs_of(relatives, child)) == ("idle", ["cancelled"])
    assert stopped["parent_version"] == parents["stopped"]["version"]
    assert parted["parent_version"] is None
    state = await caught_up(http, f"{url}/threads/bereft", saw=relatives.output)
    assert outputs(state) == ["deleted"]
    assert [run["status"] for run in state["runs"]] == ["completed"]
    # What was said is said no more: the children belong to their owner, and nobody stops what it asks of them.
    relatives.go()
    for child in (stopped, parted):
        await say(http, of(api, "helper"), child["thread_id"], "tell 5 0")
        state = await caught_up(http, f"{of(api, 'helper')}/threads/{child['thread_id']}", saw=relatives.output)
        assert [run["status"] for run in state["runs"]] == ["cancelled", "completed"]
    assert len(relatives.traces("main-result")) == 1, "of the call whose child was deleted"
