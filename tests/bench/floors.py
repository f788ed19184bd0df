"""Floors: what the parts alone cost, measured in the same run, so that a result is a ratio and not a machine."""

import asyncio
import subprocess
import sys
import time

import redis
import redis.asyncio
from celery import Celery
from tests.bench.driver import Connection, percentile
from tests.bench.stack import ROOT, Stack, free_port

NOOP_WORKER = """
import sys, time, redis
from celery import Celery
app = Celery("floor", broker=sys.argv[1])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False, broker_transport_options={"global_keyprefix": "floor:"})
client = redis.Redis.from_url(sys.argv[1])
@app.task(name="noop")
def noop(sent):
    client.rpush("floor:seen", time.monotonic_ns() - sent)
app.Worker(pool_cls="threads", concurrency=20, without_gossip=True, without_mingle=True, quiet=True).start()
"""
INSERT_SERVER = """
import sys
from contextlib import asynccontextmanager
import psycopg, uvicorn
from fastapi import FastAPI
@asynccontextmanager
async def life(app):
    app.state.connection = await psycopg.AsyncConnection.connect(sys.argv[1])
    yield
    await app.state.connection.close()
app = FastAPI(lifespan=life)
@app.post("/insert")
async def insert():
    connection = app.state.connection
    await connection.execute("INSERT INTO floor (body) VALUES ('x')")
    await connection.commit()
    return {"ok": True}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""


def celery_dispatch_ms(stack: Stack, *, count: int = 200) -> float:
    """A bare no-op task on a worker of its own: enqueue to start, p50."""
    process = subprocess.Popen(
        [sys.executable, "-c", NOOP_WORKER, stack.redis_url],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    app = Celery("floor", broker=stack.redis_url)
    app.conf.update(broker_transport_options={"global_keyprefix": "floor:"}, task_ignore_result=True)
    client = redis.Redis.from_url(stack.redis_url)
    try:
        seen: list[float] = []
        for index in range(count + 20):
            app.send_task("noop", args=[time.monotonic_ns()])
            answer = client.blpop(["floor:seen"], timeout=20)
            if index >= 20 and answer is not None:
                seen.append(int(answer[1]) / 1e6)
        return percentile(seen, 0.5)
    finally:
        process.terminate()
        process.wait(10)
        app.close()


async def xadd_receive_ms(stack: Stack, *, count: int = 500) -> float:
    """One XADD to a reader that blocks on the stream, p50."""
    writer = redis.asyncio.Redis.from_url(stack.redis_url)
    reader = redis.asyncio.Redis.from_url(stack.redis_url, socket_timeout=30)
    seen: list[float] = []

    async def read() -> None:
        last = b"$"
        while len(seen) < count:
            for _stream, entries in await reader.xread({"floor:stream": last}, block=10_000):
                now = time.monotonic_ns()
                last = entries[-1][0]
                for _, fields in entries:
                    seen.append((now - int(fields[b"at"])) / 1e6)

    task = asyncio.create_task(read())
    await asyncio.sleep(0.1)
    for _ in range(count):
        await writer.xadd("floor:stream", {"at": time.monotonic_ns()})
        await asyncio.sleep(0.001)
    await asyncio.wait_for(task, 30)
    await writer.aclose()
    await reader.aclose()
    return percentile(seen, 0.5)


async def insert_over_http_ms(stack: Stack, *, count: int = 300) -> float:
    """One INSERT in a transaction behind a FastAPI route, p50."""
    import psycopg

    url = stack.database.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS floor (id bigserial primary key, body text)")
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", INSERT_SERVER, url, str(port)], cwd=ROOT)
    try:
        client = Connection(port)
        for _ in range(200):
            try:
                await client.request("POST", "/insert")
                break
            except OSError:
                await asyncio.sleep(0.05)
        seen: list[float] = []
        for _ in range(count):
            begin = time.perf_counter()
            await client.request("POST", "/insert")
            seen.append((time.perf_counter() - begin) * 1000)
        client.close()
        return percentile(seen, 0.5)
    finally:
        process.terminate()
        process.wait(10)
