"""One identity cannot have more than its share: of requests, of threads that run, of input that waits."""

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest
from api_parts import BASE, HELLO, ServedApi, served
from sqlalchemy import text

from pai.client import create_pai_http_client
from pai.engine.limits import _BUSY
from pai.log.connection import connect
from pai.log.keys import rate_key
from pai.log.rates import LocalBuckets, Rates
from pai.protocol.errors import RateLimited
from pai.settings import Settings
from support.servers import PrivateRedis

ANNA, BEN, ROOT = ({"x-user": user} for user in ("anna", "ben", "root"))


def limited(settings: Settings, **update: Any) -> Settings:
    return Settings(**{**settings.model_dump(), "identity": "api_parts:by_header", **update})


@pytest.fixture
def on_any_database(any_database_url: str, redis_url: str) -> Settings:
    return Settings(database_url=any_database_url, redis_url=redis_url)


async def send(api: ServedApi, thread_id: str, headers: dict[str, str] = ANNA, **more: Any) -> Any:
    return await api.client.post(f"{BASE}/threads/{thread_id}/send", json={**HELLO, **more}, headers=headers)


def check_refusal(answer: Any, *, limit: int) -> None:
    assert answer.status_code == 429
    problem = answer.json()
    assert (problem["code"], problem["limit"]) == ("rate_limited", limit)
    assert problem["retryAfter"] > 0
    assert int(answer.headers["retry-after"]) >= problem["retryAfter"]


async def test_two_processes_count_the_requests_of_an_identity_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this host is: it is Redis that counts.
    monkeypatch.setattr("pai.log.rates.PATIENCE_SECONDS", 15.0)
    options = limited(settings, max_requests_per_second=1, max_request_burst=10)
    async with served(options) as one, served(options) as two:
        servers = itertools.cycle((one, two))
        asked = [next(servers).client.get(f"{BASE}/threads", headers=ANNA) for _ in range(30)]
        answers = await asyncio.gather(*asked)
        counts = Counter(answer.status_code for answer in answers)
        # Time goes on meanwhile, and a token comes back each second.
        assert 10 <= counts[200] < 20
        assert counts[200] + counts[429] == 30
        check_refusal(next(answer for answer in answers if answer.status_code == 429), limit=1)
        assert (await two.client.get(f"{BASE}/threads", headers=BEN)).status_code == 200


async def test_the_limit_holds_for_every_kind_of_request(settings: Settings) -> None:
    async with served(limited(settings, max_requests_per_second=1, max_request_burst=1)) as api:
        redis = api.state.runtime.log.redis
        for method, path in (
            ("GET", "/api/pai"),
            ("GET", BASE),
            ("POST", f"{BASE}/threads/t1/send"),
            ("GET", f"{BASE}/threads/t1/watch"),
            ("GET", f"{BASE}/heads/watch"),
            ("POST", f"{BASE}/heads/watch-token"),
        ):
            # An empty bucket that does not fill while this host is slow.
            await redis.hset(rate_key("default/anna"), mapping={"tokens": 0, "at": 2**52})
            answer = await api.client.request(method, path, headers=ANNA)
            assert answer.status_code == 429, path
        assert (await api.client.get("/healthz")).status_code == 200


async def until_refused(rates: Rates) -> float:
    """Asks until it is too often -> how long to wait."""
    try:
        while True:
            await rates.take("anna")
    except RateLimited as refused:
        return refused.retry_after or 0.0


async def test_a_request_passes_after_the_time_that_was_named(redis_url: str) -> None:
    redis = connect(redis_url)
    rates = Rates(redis, per_second=20, burst=1)
    try:
        wait = await until_refused(rates)
        assert 0 < wait <= 0.05
        await asyncio.sleep(wait)
        await rates.take("anna")
        [key] = await redis.keys("pai:rate:*")
        assert await redis.ttl(key) > 0
    finally:
        await redis.aclose()


async def test_without_redis_each_process_counts_alone(own_redis: PrivateRedis) -> None:
    redis = connect(own_redis.url)
    rates = Rates(redis, per_second=1, burst=3)
    try:
        own_redis.stop()
        for _ in range(3):
            await rates.take("anna")
        with pytest.raises(RateLimited):
            await rates.take("anna")
        await rates.take("ben")
    finally:
        await redis.aclose()


async def test_a_redis_that_does_not_answer_holds_nobody_up_twice(own_redis: PrivateRedis) -> None:
    redis = connect(own_redis.url)
    rates = Rates(redis, per_second=1, burst=3)
    try:
        own_redis.freeze()
        async with asyncio.timeout(4):
            for _ in range(3):
                await rates.take("anna")
    finally:
        own_redis.thaw()
        await redis.aclose()


def test_a_bucket_of_one_process_fills_with_time() -> None:
    buckets = LocalBuckets(2, 4)
    assert [buckets.take("a", now=0.0) for _ in range(6)] == [0, 0, 0, 0, 0.5, 0.5]
    assert [buckets.take("a", now=1.0) for _ in range(3)] == [0, 0, 0.5]
    assert [buckets.take("a", now=100.0) for _ in range(5)] == [0, 0, 0, 0, 0.5]


async def test_nothing_is_counted_without_a_limit(settings: Settings) -> None:
    async with served(limited(settings)) as api:
        answers = await asyncio.gather(*(api.client.get(f"{BASE}/threads", headers=ANNA) for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert await api.state.runtime.log.redis.keys("pai:rate:*") == []


async def test_a_trusted_caller_acts_for_many_and_is_not_limited(settings: Settings) -> None:
    options = limited(settings, max_requests_per_second=1, max_request_burst=1, max_running_threads=1)
    async with served(Settings(**{**options.model_dump(), "identity": "test_api_limits:trusting"})) as api:
        answers = [await send(api, f"t{number}", ROOT) for number in range(3)]
    assert [answer.status_code for answer in answers] == [202] * 3


async def trusting(request: Any) -> Any:
    from pai.protocol.identity import Identity

    return Identity(subject=request.headers["x-user"], trusted=True)


async def test_of_many_threads_at_once_as_many_run_as_may(on_any_database: Settings) -> None:
    options = limited(on_any_database, max_running_threads=3)
    async with served(options) as one, served(options) as two:
        servers = itertools.cycle((one, two))
        answers = await asyncio.gather(*(send(next(servers), f"t{number}") for number in range(20)))
        assert Counter(answer.status_code for answer in answers) == {202: 3, 429: 17}
        check_refusal(next(answer for answer in answers if answer.status_code == 429), limit=3)
        # Nothing is left of those that were refused, not even an empty thread.
        assert len((await one.client.get(f"{BASE}/threads", headers=ANNA)).json()["items"]) == 3
        assert (await send(one, "t1", BEN)).status_code == 202


async def test_a_thread_that_ends_makes_room_for_another(on_any_database: Settings) -> None:
    async with served(limited(on_any_database, max_running_threads=1)) as api:
        sent = (await send(api, "t1", messageId="m1")).json()
        check_refusal(await send(api, "t2"), limit=1)
        # The recorded answer is no new run, and input that waits runs in the place of what runs.
        assert (await send(api, "t1", messageId="m1")).json() == sent
        assert (await send(api, "t1", queue={"mode": "queue"})).status_code == 202
        assert (await api.client.post(f"{BASE}/threads/t1/stop", headers=ANNA)).status_code == 202
        assert (await send(api, "t2")).status_code == 202
        answer = await api.client.post(
            f"{BASE}/threads/t1/regenerate", json={"runId": sent["run"]["runId"]}, headers=ANNA
        )
        check_refusal(answer, limit=1)


async def test_input_waits_up_to_the_limit_of_all_threads(on_any_database: Settings) -> None:
    async with served(limited(on_any_database, max_queued_inputs=3)) as api:
        for thread_id in ("t1", "t2"):
            assert (await send(api, thread_id)).status_code == 202
        queue = {"queue": {"mode": "queue"}}
        answers = await asyncio.gather(*(send(api, f"t{1 + number % 2}", **queue) for number in range(10)))
        assert Counter(answer.status_code for answer in answers) == {202: 3, 429: 7}
        check_refusal(next(answer for answer in answers if answer.status_code == 429), limit=3)
        assert (await send(api, "t1")).json()["code"] == "thread_busy"
        accepted = next(answer.json() for answer in answers if answer.status_code == 202)
        path = f"{BASE}/threads/{accepted['run']['threadId']}/queue/{accepted['queueItemId']}"
        assert (await api.client.delete(path, headers=ANNA)).status_code == 202
        assert (await send(api, "t1", **queue)).status_code == 202


async def test_the_count_of_busy_threads_reads_an_index(postgres_url: str, redis_url: str) -> None:
    api = served(Settings(database_url=postgres_url, redis_url=redis_url))
    async with api as running, running.state.runtime.store.write() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        query = _BUSY.params(owner="x").compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        plan = await connection.execute(text(f"EXPLAIN {query}"))
        assert "ix_thread_busy" in "\n".join(row[0] for row in plan)


async def test_a_client_is_told_when_to_come_again(settings: Settings) -> None:
    async with (
        served(limited(settings, max_running_threads=1)) as api,
        create_pai_http_client(str(api.client.base_url), headers=ANNA) as server,
    ):
        agent = server.agent("main")
        await agent.thread("t1").send("hello")
        with pytest.raises(RateLimited) as refused:
            await agent.thread("t2").send("hello")
    assert (refused.value.limit, refused.value.retry_after) == (1, 1.0)
