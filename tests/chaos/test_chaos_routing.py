"""Which worker runs what: by agent, by queue, by whatever broker carries the messages."""

from uuid import uuid4

import httpx
import pytest

from support.chaos_agents import words
from support.cluster import Cluster
from support.servers import RABBITMQ_URL, missing
from support.waiting import wait_until
from support.watching import Follower, caught_up, following, outputs, say, texts

BOTH = "support.chaos_agents:both"


async def test_a_worker_that_does_not_know_an_agent_leaves_its_steps_to_others(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    api, old = chaos.start_api(PAI_AGENTS=BOTH), chaos.start_worker()
    stranger = api.ready().url.replace("/main", "/stranger")
    old.ready()
    watcher = Follower(http, [stranger], "t")
    async with following(watcher):
        await say(http, stranger, "t", "tell 5 0")
        await say(http, api.url, "t", "tell 3 0")
        assert texts(await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)) == [words(3)]
        message = (await http.get(f"{stranger}/threads/t")).json()["messages"][-1]["id"]
        assert not chaos.traces(f"model-{message}")
        new = [chaos.start_worker(PAI_AGENTS=BOTH), chaos.start_worker(PAI_AGENTS=BOTH)]
        state = await caught_up(http, f"{stranger}/threads/t", watcher, saw=chaos.output)
    assert texts(state) == [words(5)]
    [ran] = chaos.traces(f"model-{message}")
    assert ran in [worker.pid for worker in new]
    assert old.alive


async def test_a_tool_with_a_queue_runs_on_the_worker_that_serves_it(chaos: Cluster, http: httpx.AsyncClient) -> None:
    slow = chaos.start_worker(PAI_QUEUES="slow")
    api, fast = chaos.pair(PAI_QUEUES="pai")
    slow.ready()
    await say(http, api.url, "t", "tell 3 0 call routed once then call routed then tell 3 0")
    state = await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)
    assert outputs(state) == ["routed m0", "once m1", "routed m0"]
    assert chaos.traces("routed") == [slow.pid, slow.pid]
    assert chaos.traces("once") == [fast.pid]
    assert set(chaos.traces("model-*")) == {fast.pid}


async def test_rabbitmq_carries_the_steps(chaos: Cluster, http: httpx.AsyncClient) -> None:
    amqp = pytest.importorskip("amqp")
    host = RABBITMQ_URL.partition("@")[2].split("/")[0]
    try:
        with amqp.Connection(host=host, connect_timeout=2) as connection:
            connection.connect()
    except OSError:
        missing(f"RabbitMQ at {host}")
    queue = f"pai-test-{uuid4().hex[:8]}"
    chaos.environment = {
        **chaos.environment,
        "PAI_BROKER_URL": RABBITMQ_URL,
        "PAI_DEFAULT_QUEUE": queue,
        "PAI_SWEEP_INTERVAL": "600",  # the broker carries the step, not the sweep
    }
    api, worker = chaos.pair(PAI_QUEUES=queue)
    try:
        await say(http, api.url, "t", "tell 5 0 call once then tell 5 0")
        state = await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)
        worker.terminate()
        await wait_until(lambda: not worker.alive)
    finally:
        with amqp.Connection(host=host) as connection:
            connection.connect()
            connection.channel().queue_delete(queue)
    assert texts(state) == [words(5), words(5)]
    assert outputs(state) == ["once m0"]
    assert worker.exit_code == 0
