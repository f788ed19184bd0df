"""The cases: each returns rows of (what, value, unit) for the table."""

import asyncio
import gc
import itertools
import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import psycopg
from tests.bench.driver import STAMP, Connection, Watcher, send_body
from tests.bench.stack import Stack, cpu_seconds, memory_mib

from pai.fold import Fold

Row = tuple[str, float, str]
IDLE = b'"status":"idle"'
AT = re.compile(rb'"chunk":\{"type":"tool-input-available"[^\n]*?"at":(\d+)')


def path(agent: str, thread: str, rest: str = "") -> str:
    return f"/api/pai/{agent}/threads/{thread}{rest}"


def thread_id() -> str:
    return uuid.uuid4().hex


@dataclass
class Seen:
    """What a watcher of one thread has seen."""

    deltas: int = 0
    first_at: int = 0
    delays: list[float] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, data: bytes, now: int) -> None:
        for match in STAMP.finditer(data):
            made = int(match[1])
            self.deltas += 1
            self.first_at = self.first_at or now
            self.stamps.append(made)
            self.delays.append((now - made) / 1e6)
        if IDLE in data:
            self.idle.set()


async def send(client: Connection, agent: str, thread: str, text: str = "hi") -> None:
    status, body = await client.request("POST", path(agent, thread, "/send"), send_body(text))
    if status != 202:
        raise RuntimeError(f"send answered {status}: {body[:200]!r}")


async def _crowd(stack: Stack, one: Callable[[Connection], Awaitable[None]], *, concurrent: int, rounds: int) -> None:
    """Does the same over `concurrent` connections at once, so many times."""
    clients = [Connection(stack.port) for _ in range(concurrent)]
    for _ in range(rounds):
        await asyncio.gather(*(one(client) for client in clients))
    for client in clients:
        client.close()


async def first_chunk(stack: Stack, *, concurrent: int, count: int) -> list[float]:
    """Send to first chunk at a watcher, in milliseconds; `concurrent` threads at once."""
    latencies: list[float] = []

    async def one(client: Connection) -> None:
        thread = thread_id()
        # The first turn makes the thread; it is the second one that is measured, on a watched, idle thread.
        seen = Seen()
        watcher = await Watcher.open(stack.port, path("quick", thread, "/watch"), seen)
        await send(client, "quick", thread)
        await asyncio.wait_for(seen.idle.wait(), 60)
        for _ in range(3):
            seen.idle.clear()
            seen.first_at = 0
            begin = time.monotonic_ns()
            await send(client, "quick", thread)
            await asyncio.wait_for(seen.idle.wait(), 60)
            latencies.append((seen.first_at - begin) / 1e6)
        watcher.close()

    await _crowd(stack, one, concurrent=concurrent, rounds=max(1, count // (3 * concurrent)))
    return latencies


async def submit(stack: Stack, *, tool: str, count: int) -> tuple[list[float], list[float]]:
    """Submit to first chunk of the continuation, and to that of its model, in milliseconds.

    `tool`: approve, which is entered again, so that its output is the continuation's first chunk, or pick, whose output
    is what is submitted.
    """
    first: list[float] = []
    spoken: list[float] = []
    asked = re.compile(rb'"canRespondToActions":true')

    async def one(client: Connection) -> None:
        thread, seen, pending = thread_id(), Seen(), asyncio.Event()
        came: list[int] = []

        def on_data(data: bytes, now: int) -> None:
            seen(data, now)
            if tool == "approve" and b'"tool-output-available"' in data:
                came.append(now)
            if asked.search(data):
                pending.set()

        watcher = await Watcher.open(stack.port, path("asks", thread, "/watch"), on_data)
        for _ in range(3):
            seen.idle.clear()
            pending.clear()
            await send(client, "asks", thread, tool)
            await asyncio.wait_for(pending.wait(), 60)
            # A send to a waiting thread is refused, and says what the thread waits for.
            _, refused = await client.request("POST", path("asks", thread, "/send"), send_body("x"))
            [ref] = json.loads(refused)["pendingActions"]
            body = json.dumps({"ref": ref, "response": {"type": "submit", "payload": {"approved": True}}})
            seen.first_at = 0
            came.clear()
            begin = time.monotonic_ns()
            status, answer = await client.request("POST", path("asks", thread, "/actions"), body.encode())
            if status != 202:
                raise RuntimeError(f"submit answered {status}: {answer[:200]!r}")
            await asyncio.wait_for(seen.idle.wait(), 60)
            first.append((min([seen.first_at, *came]) - begin) / 1e6)
            spoken.append((seen.first_at - begin) / 1e6)
        watcher.close()

    await _crowd(stack, one, concurrent=1, rounds=count // 3)
    return first, spoken


async def waiting(stack: Stack, *, count: int, warm: int = 1_000, concurrent: int = 16) -> list[Row]:
    """Resident memory with `count` runs that wait for people, against that with `warm` of them."""

    clients = [Connection(stack.port) for _ in range(concurrent)]

    async def ask(many: int) -> None:
        """As fast as they come to wait: a backlog, dispatched again and again, is not what is measured."""
        done = in_status(stack, "waiting")
        for begin in range(0, many, 200):
            left = iter(range(min(200, many - begin)))

            async def sender(client: Connection, tool: str, left: Iterator[int] = left) -> None:
                for _ in left:
                    await send(client, "asks", thread_id(), tool)

            tools = itertools.cycle(("approve", "pick"))
            await asyncio.gather(*(sender(client, next(tools)) for client in clients))
            deadline = time.monotonic() + 120
            while in_status(stack, "waiting") < done + min(begin + 200, many):
                await asyncio.sleep(0.02)
                if time.monotonic() > deadline:
                    raise RuntimeError("the runs do not come to wait")

    await ask(warm)
    processes = {name: process.pid for name, process in stack.processes.items()}
    base = {name: memory_mib(pid) for name, pid in processes.items()}
    await ask(count - warm)
    await asyncio.sleep(2)
    cpu = {name: cpu_seconds(pid) for name, pid in processes.items()}
    await asyncio.sleep(5)
    rows: list[Row] = []
    for name, pid in processes.items():
        rows.append((f"memory of {name}, {warm:,} runs wait", base[name], "MiB"))
        rows.append((f"memory of {name}, {count:,} runs wait", memory_mib(pid), "MiB"))
        rows.append((f"CPU of {name}, {count:,} runs wait", (cpu_seconds(pid) - cpu[name]) / 5 * 100, "%"))
    for client in clients:
        client.close()
    return rows


def sql_statistics(stack: Stack) -> int:
    with psycopg.connect(stack.database.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return int(row[0]) if row else 0


def in_status(stack: Stack, status: str) -> int:
    with psycopg.connect(stack.database.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM run WHERE status = %s", (status,)).fetchone()
    return int(row[0]) if row else 0


def completed(stack: Stack) -> int:
    return in_status(stack, "completed")


async def saturation(stack: Stack, *, count: int, concurrent: int = 32) -> list[Row]:
    """One-step runs of 20 chunks on new threads, as fast as they go."""
    before, transactions = completed(stack), sql_statistics(stack)
    processes = {name: process.pid for name, process in stack.processes.items()}
    cpu = {name: cpu_seconds(pid) for name, pid in processes.items()}
    left = iter(range(count))
    begin = time.perf_counter()

    async def sender() -> None:
        client = Connection(stack.port)
        for _ in left:
            await send(client, "quick", thread_id())
        client.close()

    await asyncio.gather(*(sender() for _ in range(concurrent)))
    sent = time.perf_counter() - begin
    while completed(stack) - before < count:
        await asyncio.sleep(0.1)
        if time.perf_counter() - begin > 180:
            raise RuntimeError("the runs do not complete")
    took = time.perf_counter() - begin
    await asyncio.sleep(1.5)  # the statistics of PostgreSQL lag behind
    rows: list[Row] = [
        ("sends accepted", count / sent, "/s"),
        ("one-step runs completed at saturation", count / took, "/s"),
        ("transactions per run", (sql_statistics(stack) - transactions) / count, ""),
    ]
    for name, pid in processes.items():
        rows.append((f"CPU per run, {name}", (cpu_seconds(pid) - cpu[name]) / count * 1000, "ms"))
    return rows


async def delivery(stack: Stack, *, runs: int, rate: int, seconds: float) -> tuple[list[float], int]:
    """Chunk published to received, of `runs` runs with `rate` chunks a second each. -> delays in ms, chunks lost."""
    per_run = round(rate * seconds)
    threads = [thread_id() for _ in range(runs)]
    seen = [Seen() for _ in threads]
    watchers = [
        await Watcher.open(stack.port, path("steady", thread, "/watch"), one)
        for thread, one in zip(threads, seen, strict=True)
    ]
    client = Connection(stack.port)
    for thread in threads:
        await send(client, "steady", thread, f"{rate}/{per_run}")
    await asyncio.wait_for(asyncio.gather(*(one.idle.wait() for one in seen)), seconds * 4 + 30)
    for watcher in watchers:
        watcher.close()
    client.close()
    for one in seen:
        if one.stamps != sorted(one.stamps):
            raise RuntimeError("a watcher saw chunks out of order")
    lost = sum(per_run - one.deltas for one in seen)
    # The first second is the start of all runs at once.
    settled = [delay for one in seen for delay in one.delays[rate:]]
    return settled, lost


async def many_watchers(stack: Stack, *, watchers: int, threads: int, seconds: float) -> tuple[list[float], int, int]:
    """`watchers` watchers spread over `threads` threads, 1,000 events a second delivered in all.

    -> delays in ms, events lost, Redis connections of the API.
    """
    rate = max(1, round(1000 / watchers)) if threads == watchers else 1000 / watchers
    per_thread = max(1, round(rate * seconds))
    ids = [thread_id() for _ in range(threads)]
    client = Connection(stack.port)
    for thread in ids:
        made = Seen()
        first = await Watcher.open(stack.port, path("steady", thread, "/watch"), made)
        await send(client, "steady", thread, "1000/1")
        await asyncio.wait_for(made.idle.wait(), 30)
        first.close()
    seen = [Seen() for _ in range(watchers)]
    opened = [
        await Watcher.open(stack.port, path("steady", ids[index % threads], "/watch"), seen[index])
        for index in range(watchers)
    ]
    connections = redis_connections(stack)
    for thread in ids:
        await send(client, "steady", thread, f"{rate}/{per_thread}")
    await asyncio.wait_for(asyncio.gather(*(one.idle.wait() for one in seen)), seconds * 3 + 90)
    for watcher in opened:
        watcher.close()
    client.close()
    lost = sum(per_thread - one.deltas for one in seen)
    return [delay for one in seen for delay in one.delays], lost, connections


def redis_connections(stack: Stack) -> int:
    import redis

    with redis.Redis.from_url(stack.redis_url) as client:
        return len(client.client_list())


async def tool_hops(stack: Stack, *, concurrent: int, rounds: int) -> list[float]:
    """From one tool call to the next of five in a row, in milliseconds."""
    hops: list[float] = []

    async def one() -> None:
        client = Connection(stack.port)
        for _ in range(rounds):
            thread, stamps, idle = thread_id(), list[int](), asyncio.Event()

            def on_data(data: bytes, now: int, stamps: list[int] = stamps, idle: asyncio.Event = idle) -> None:
                stamps += [int(match[1]) for match in AT.finditer(data)]
                if IDLE in data:
                    idle.set()

            watcher = await Watcher.open(stack.port, path("hops", thread, "/watch"), on_data)
            await send(client, "hops", thread)
            await asyncio.wait_for(idle.wait(), 60)
            watcher.close()
            hops.extend((after - before) / 1e6 for before, after in itertools.pairwise(stamps))
        client.close()

    await asyncio.gather(*(one() for _ in range(concurrent)))
    return hops


async def attach(stack: Stack, *, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds to attach in mid-answer with 2,000 chunks behind, and to read a thread of 2,000 messages."""
    client = Connection(stack.port)
    thread = thread_id()
    await send(client, "steady", thread, "1000/60000")
    await asyncio.sleep(3.5)
    mid: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        whole = asyncio.Event()

        def on_data(data: bytes, now: int, whole: asyncio.Event = whole) -> None:
            if b'"type":"snapshot"' in data:
                whole.set()

        watcher = await Watcher.open(stack.port, path("steady", thread, "/watch?snapshot=1"), on_data)
        await asyncio.wait_for(whole.wait(), 30)
        mid.append((time.perf_counter() - begin) * 1000)
        watcher.close()
    await client.request("POST", path("steady", thread, "/stop"), b"{}")
    long = await long_thread(stack, client, messages=2000)
    read: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        status, _ = await client.request("GET", path("quick", long))
        if status != 200:
            raise RuntimeError(f"the snapshot answered {status}")
        read.append((time.perf_counter() - begin) * 1000)
    client.close()
    return mid, read


async def long_thread(stack: Stack, client: Connection, *, messages: int) -> str:
    """A thread whose transcript is copied up to `messages` messages, as a long conversation leaves it."""
    thread = thread_id()
    seen = Seen()
    watcher = await Watcher.open(stack.port, path("quick", thread, "/watch"), seen)
    await send(client, "quick", thread)
    await asyncio.wait_for(seen.idle.wait(), 30)
    watcher.close()
    with psycopg.connect(stack.database.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            """
            INSERT INTO message (version, message_id, position, run_id, role, meta, parts, private_meta, visibility,
                                 open, folding, stored_sequence)
            SELECT m.version, m.message_id || '-' || n, 1000 + n * 2 + (m.role = 'assistant')::int, m.run_id, m.role,
                   m.meta, m.parts, m.private_meta, m.visibility, false, NULL, 0
            FROM message m JOIN thread t ON t.version = m.version, generate_series(1, %s) n
            WHERE t.thread_id = %s
            """,
            (messages // 2 - 1, thread),
        )
    return thread


def fold_cost() -> list[Row]:
    """Microseconds per text delta around the 10th and the 100,000th chunk of one message."""
    fold = Fold({"id": "m", "role": "assistant", "metadata": {}, "parts": []})
    fold.apply({"type": "start-step"})
    fold.apply({"type": "text-start", "id": "t"})
    chunk = {"type": "text-delta", "id": "t", "delta": "word "}
    rows: list[Row] = []
    gc.disable()
    applied = 0
    for target in (10, 1_000, 100_000):
        while applied < target - 10:
            fold.apply(chunk)
            applied += 1
        begin = time.perf_counter()
        for _ in range(20):
            fold.apply(chunk)
        rows.append((f"fold, around chunk {target:,}", (time.perf_counter() - begin) / 20 * 1e6, "us"))
        applied += 20
    gc.enable()
    return rows


async def memory(stack: Stack) -> list[Row]:
    """Resident memory: idle, with 1,000 watchers, with 200 concurrent runs in the worker."""
    rows: list[Row] = [
        ("memory of the API, idle", memory_mib(stack.api), "MiB"),
        ("memory of the worker, idle", memory_mib(stack.worker), "MiB"),
        ("worker start to ready", stack.worker_start_ms, "ms"),
    ]
    watchers = [await Watcher.open(stack.port, path("steady", thread_id(), "/watch"), Seen()) for _ in range(1000)]
    rows.append(("memory of the API, 1,000 watchers", memory_mib(stack.api), "MiB"))
    for watcher in watchers:
        watcher.close()
    client = Connection(stack.port)
    threads = [thread_id() for _ in range(200)]
    for thread in threads:
        await send(client, "steady", thread, "1/30")
    await asyncio.sleep(8)
    rows.append(("memory of the worker, 200 runs", memory_mib(stack.worker), "MiB"))
    for thread in threads:
        await client.request("POST", path("steady", thread, "/stop"), b"{}")
    client.close()
    return rows
