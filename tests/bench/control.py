"""Cases beside the stream: stopping, listing, files."""

import asyncio
import time
from pathlib import Path

import psycopg
from tests.bench.cases import IDLE, Row, path, send, thread_id
from tests.bench.driver import Connection, Watcher, percentile
from tests.bench.stack import Stack, memory_mib

MIB = 1024 * 1024


async def stops(stack: Stack, *, count: int) -> list[Row]:
    """From a stop to the end of the model's generator in its worker, and to `idle` at a watcher."""
    client, to_generator, to_idle = Connection(stack.port), list[float](), list[float]()
    for _ in range(count):
        thread, first, idle_at = thread_id(), asyncio.Event(), asyncio.Future[int]()

        def on_data(
            data: bytes, now: int, first: asyncio.Event = first, idle_at: "asyncio.Future[int]" = idle_at
        ) -> None:
            if b'"text-delta"' in data:
                first.set()
            if IDLE in data and not idle_at.done():
                idle_at.set_result(now)

        watcher = await Watcher.open(stack.port, path("steady", thread, "/watch"), on_data)
        await send(client, "steady", thread, "20/10000")
        await asyncio.wait_for(first.wait(), 30)
        stopped = len(_stopped(stack.stopped_file))
        begin = time.monotonic_ns()
        status, _ = await client.request("POST", path("steady", thread, "/stop"), b"{}")
        if status != 202:
            raise RuntimeError(f"the stop answered {status}")
        to_idle.append((await asyncio.wait_for(idle_at, 30) - begin) / 1e6)
        while len(moments := _stopped(stack.stopped_file)) == stopped:  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.002)
        to_generator.append((moments[-1] - begin) / 1e6)
        watcher.close()
    client.close()
    return [
        ("stop to the end of the generator, p50", percentile(to_generator, 0.5), "ms"),
        ("stop to the end of the generator, p95", percentile(to_generator, 0.95), "ms"),
        ("stop to idle at the watcher, p95", percentile(to_idle, 0.95), "ms"),
    ]


def _stopped(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


async def lists(stack: Stack, *, threads: int, count: int) -> list[Row]:
    """A page of 50 of a list of `threads` threads, over HTTP, and the same rows from PostgreSQL alone."""
    client = Connection(stack.port)
    await send(client, "quick", thread_id())
    with psycopg.connect(stack.database.replace("+psycopg", ""), autocommit=True) as connection:
        names = [
            row[0]
            for row in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'thread' ORDER BY 1"
            )
        ]
        other = {"version": "'l' || n", "thread_id": "'l' || n", "listed_at": "listed_at - n", "status": "'idle'"}
        columns = ", ".join(f'"{name}"' for name in names)
        values = ", ".join(other.get(name, f't."{name}"') for name in names)
        connection.execute(
            f"INSERT INTO thread ({columns}) SELECT {values} FROM (SELECT * FROM thread LIMIT 1) t, "
            f"generate_series(1, {threads}) n"
        )
        connection.execute("ANALYZE thread")
        over_http, in_sql = list[float](), list[float]()
        query = "SELECT * FROM thread WHERE owner = %s AND agent = %s AND NOT hidden ORDER BY listed_at DESC LIMIT 51"
        for _ in range(count):
            begin = time.perf_counter()
            connection.execute(query, ("default/anonymous", "quick")).fetchall()
            in_sql.append((time.perf_counter() - begin) * 1000)
            begin = time.perf_counter()
            status, _ = await client.request("GET", "/api/pai/quick/threads?limit=50")
            if status != 200:
                raise RuntimeError(f"the list answered {status}")
            over_http.append((time.perf_counter() - begin) * 1000)
    client.close()
    return [
        (f"a page of {threads:,} threads over HTTP, p50", percentile(over_http, 0.5), "ms"),
        ("the same rows from SQL alone, p50", percentile(in_sql, 0.5), "ms"),
    ]


async def files(stack: Stack, *, size: int = 100 * MIB) -> list[Row]:
    """An upload and a download of one large file, and what they add to the memory of the API."""
    before = memory_mib(stack.api)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    head = (
        f"POST /api/pai/quick/files HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n"
        f"content-length: {size}\r\n\r\n"
    )
    begin, piece, peak = time.perf_counter(), b"x" * MIB, before
    writer.write(head.encode())
    for sent in range(0, size, MIB):
        writer.write(piece)
        await writer.drain()
        if sent % (10 * MIB) == 0:
            peak = max(peak, memory_mib(stack.api))
    answer = await reader.readuntil(b"}")
    uploaded = time.perf_counter() - begin
    if b" 201 " not in answer[:20]:
        raise RuntimeError(f"the upload answered {answer[:300]!r}")
    file_id = answer.split(b'"fileId":"')[1].split(b'"')[0].decode()
    begin, received = time.perf_counter(), 0
    writer.write(f"GET /api/pai/quick/files/{file_id} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    while received < size:
        received += len(await reader.read(MIB))
        if received % (10 * MIB) < MIB:
            peak = max(peak, memory_mib(stack.api))
    downloaded = time.perf_counter() - begin
    writer.close()
    return [
        (f"upload of {size // MIB} MiB", uploaded, "s"),
        (f"download of {size // MIB} MiB", downloaded, "s"),
        ("memory that both add to the API", peak - before, "MiB"),
    ]
