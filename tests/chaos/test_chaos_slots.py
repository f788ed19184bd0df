"""Workers whose slots are all taken, and messages that mean nothing."""

from datetime import timedelta

import httpx
import pytest
import redis

from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import caught_up, outputs, say


async def test_a_freed_slot_takes_the_next_message_at_once(chaos: Cluster, http: httpx.AsyncClient) -> None:
    """One slot, a hundred runs: a worker that looked for its next message once a second would need more time."""
    api, _ = chaos.pair(PAI_WORKER_CONCURRENCY="1")
    count = 100

    async def all_idle() -> bool:
        page = (await http.get(f"{api.url}/threads?limit=100")).json()
        return [item["status"] for item in page["items"]] == ["idle"] * count

    for number in range(count):
        await say(http, api.url, f"t{number}", "tell 1 0")
    await wait_until(all_idle, timeout=timedelta(seconds=60), saw=chaos.output)


async def test_what_a_tool_began_and_left_does_not_end_the_worker(chaos: Cluster, http: httpx.AsyncClient) -> None:
    api, worker = chaos.pair()
    await say(http, api.url, "t", "call exit_beside")
    state = await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)
    assert outputs(state) == ["exit m0"]
    assert worker.alive


@pytest.mark.parametrize("message", [b"no json", b"[]", b""])
async def test_a_worker_that_a_message_ends_says_so_to_whoever_watches_over_it(
    chaos: Cluster, http: httpx.AsyncClient, message: bytes
) -> None:
    api, worker = chaos.pair()
    with redis.Redis.from_url(chaos.redis.url) as broker:
        broker.lpush("pai:pai", message)
    await wait_until(lambda: not worker.alive, saw=chaos.output)
    assert worker.exit_code == 1
    chaos.start_worker().ready()
    await say(http, api.url, "t", "tell 1 0")
    await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)
