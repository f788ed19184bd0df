"""Health, metrics, CORS, and an orderly end."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from api_parts import BASE, HELLO, ServedApi, registry, served

from pai.settings import Settings
from pai.store.errors import SchemaOutdated
from pai_api.app import create_app
from support.servers import PrivateRedis, free_port
from support.waiting import wait_until


async def test_a_process_that_can_serve_is_ready(api: ServedApi) -> None:
    assert (await api.client.get("/healthz")).json() == {"status": "ok"}
    answer = await api.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "parts": {"sql": "ok", "redis": "ok"}}


async def test_readiness_says_that_redis_is_missing_and_sends_are_still_accepted(
    settings: Settings, own_redis: PrivateRedis
) -> None:
    async with served(settings.model_copy(update={"redis_url": own_redis.url})) as api:
        own_redis.stop()
        answer = await api.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {"status": "unavailable", "parts": {"sql": "ok", "redis": "unreachable"}}
        assert (await api.client.get("/healthz")).status_code == 200
        assert (await api.client.post(f"{BASE}/threads/t1/send", json=HELLO)).status_code == 202
        assert (await api.snapshot("t1"))["revision"] == 1
        own_redis.start()
        await wait_until(lambda: _is_ready(api))


async def test_readiness_waits_a_bounded_time_for_a_frozen_server(settings: Settings, own_redis: PrivateRedis) -> None:
    async with served(settings.model_copy(update={"redis_url": own_redis.url})) as api:
        own_redis.freeze()
        try:
            async with asyncio.timeout(10):
                answer = await api.client.get("/readyz")
        finally:
            own_redis.thaw()
        assert answer.json()["parts"] == {"sql": "ok", "redis": "unreachable"}


async def test_without_a_database_the_process_starts_and_says_what_is_missing(settings: Settings) -> None:
    url = f"postgresql+psycopg://127.0.0.1:{free_port()}/nothing"
    async with served(settings.model_copy(update={"database_url": url})) as api:
        answer = await api.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["parts"]["sql"] == "unreachable"
        for answer in (
            await api.client.post(f"{BASE}/threads/t1/send", json=HELLO),
            await api.client.get(f"{BASE}/threads/t1/watch"),
            await api.client.get(f"{BASE}/threads"),
        ):
            assert answer.status_code == 503
            assert answer.json()["code"] == "unavailable"
            assert int(answer.headers["retry-after"]) >= 1
            assert "127.0.0.1" not in answer.text


async def test_an_older_schema_is_refused(settings: Settings, tmp_path: Path) -> None:
    app = create_app(settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/empty.db"}), registry())
    with pytest.raises(SchemaOutdated, match="paictl db upgrade"):
        async with app.router.lifespan_context(app):
            pass


async def test_metrics_count_by_operation_and_never_by_path(api: ServedApi) -> None:
    await api.send("t1")
    await api.client.get(f"{BASE}/threads/nothing")
    await api.client.get("/some/strange/path")
    async with api.watch(f"{BASE}/threads/t1/watch") as events:
        await events.next()
        await api.client.patch(f"{BASE}/threads/t1", json={"title": "x"})
        await events.next_of("update")
        text = (await api.client.get("/metrics")).text
    assert 'pai_http_requests_total{operation="send",status="202"} 1.0' in text
    assert 'pai_http_requests_total{operation="getThread",status="404"} 1.0' in text
    assert 'pai_http_requests_total{operation="none",status="404"} 1.0' in text
    assert 'pai_http_seconds_count{operation="watchThread"} 1.0' in text
    assert 'pai_watchers{kind="thread"} 1.0' in text
    assert "pai_watch_events_total 1.0" in text
    assert "pai_publish_failures 0.0" in text
    assert "pai_log_connected 1.0" in text
    assert "strange" not in text


async def test_two_applications_count_for_themselves(settings: Settings) -> None:
    async with served(settings) as one, served(settings) as two:
        await one.send("t1")
        assert 'operation="send"' in (await one.client.get("/metrics")).text
        assert 'operation="send"' not in (await two.client.get("/metrics")).text


async def test_browsers_of_allowed_origins_may_call(settings: Settings) -> None:
    origin = "https://app.example"
    async with served(settings.model_copy(update={"cors_origins": (origin,)})) as api:
        preflight = await api.client.options(
            f"{BASE}/threads/t1/send",
            headers={
                "origin": origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "content-type,idempotency-key",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "idempotency-key" in preflight.headers["access-control-allow-headers"]
        for answer in (
            await api.client.get("/api/pai", headers={"origin": origin}),
            await api.client.get(f"{BASE}/threads/none", headers={"origin": origin}),
        ):
            assert answer.headers["access-control-allow-origin"] == origin
            assert "retry-after" in answer.headers["access-control-expose-headers"].lower()
        async with api.watch(f"{BASE}/heads/watch", headers={"origin": origin}) as events:
            assert events.response.headers["access-control-allow-origin"] == origin
        stranger = await api.client.get("/api/pai", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in stranger.headers


async def test_without_the_setting_no_origin_is_allowed(api: ServedApi) -> None:
    answer = await api.client.get("/api/pai", headers={"origin": "https://app.example"})
    assert "access-control-allow-origin" not in answer.headers


async def test_a_server_that_is_told_to_stop_ends_its_watches(settings: Settings) -> None:
    port = free_port()
    environment = {
        **os.environ,
        "PAI_DATABASE_URL": settings.database_url,
        "PAI_REDIS_URL": str(settings.redis_url),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "--factory", "pai_api.app:create", "--port", str(port)),
        *("--log-level", "warning"),
        env=environment,
    )
    try:
        await wait_until(lambda: _listens(port, process))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {BASE}/threads/t1/watch HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await reader.readuntil(b'"ready"')
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            await process.wait()
        writer.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _is_ready(api: ServedApi) -> bool:
    return (await api.client.get("/readyz")).status_code == 200


async def _listens(port: int, process: asyncio.subprocess.Process) -> bool:
    assert process.returncode is None, "the server did not start"
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
