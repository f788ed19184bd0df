"""The engine without a broker: API and worker processes as runtimes in one loop, with a post that carries steps."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from engine_agent import Stage, registry_of
from sqlalchemy import select, text

from pai.broker import Dispatcher
from pai.contract import Agent, Registry
from pai.engine import api
from pai.engine.runtime import Caller, Runtime
from pai.log.connection import connect
from pai.log.event_log import EventLog
from pai.log.publisher import Publisher
from pai.log.signals import Signals
from pai.models import ModelRequest, ScriptedModel
from pai.models.scripted import Script, says
from pai.protocol.identity import Identity
from pai.protocol.requests import ActionRequest, MutationResult, SendRequest, StopRunRequest, StopThreadRequest
from pai.protocol.state import TransportState
from pai.settings import Settings
from pai.store.store import Store
from pai.store.tables import Step, StepTable, Thread, ThreadTable, table_of
from pai_workers.catalog import Models
from pai_workers.runner import Runner
from pai_workers.sweep import sweep
from support.waiting import wait_until

QUEUES = frozenset({"pai"})


class Post:
    """Carries dispatched steps to the workers in turn, as a broker would; it may hold them back, or lose them."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.sent: list[str] = []
        self.held: list[str] = []
        self.holds = False
        self._turn = itertools.count()

    def dispatch(self, steps: Sequence[tuple[str, str]]) -> None:
        for step_id, queue in steps:
            self.sent.append(step_id)
            if self.holds or queue not in QUEUES:
                self.held.append(step_id)
            else:
                self.workers[next(self._turn) % len(self.workers)].take(step_id)

    def pushes(self, steps: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
        """None: this broker is not in the log."""
        return []

    def release(self) -> None:
        """Delivers what was held back."""
        self.holds = False
        held, self.held = self.held, []
        self.dispatch([(step_id, "pai") for step_id in held])


class Worker:
    """A worker process."""

    def __init__(self, runtime: Runtime, publisher: Publisher, runner: Runner) -> None:
        self.runtime = runtime
        self.publisher = publisher
        self.runner = runner
        self.tasks: set[asyncio.Task[None]] = set()

    def take(self, step_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self.runner.run(step_id))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def quiet(self) -> None:
        """Returns when it does nothing any more."""
        await wait_until(lambda: not self.tasks)

    async def end(self) -> None:
        for _, task in list(self.runner._tasks.values()):
            task.cancel()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.runtime.settle()


class Engine:
    """`turns` are what the model says next; when there are none it says `ok`. `stage` holds what tools did."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.turns: deque[Script] = deque()
        self.model = ScriptedModel(self._answer)
        self.stage = Stage()
        self.registry: Registry = registry_of(self.model, self.stage)
        self.post = Post()
        self.runtimes: list[Runtime] = []
        self.workers: list[Worker] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator["Engine"]:
        """Two API processes and two workers."""
        engine = cls(settings)
        async with engine.running():
            yield engine

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self.runtimes = [await self._runtime(stack), await self._runtime(stack)]
            self.workers = [await self._worker(stack), await self._worker(stack)]
            self.post.workers = list(self.workers)
            try:
                yield
            finally:
                for worker in self.workers:
                    await worker.end()

    async def _runtime(self, stack: AsyncExitStack, *, queues: frozenset[str] = frozenset()) -> Runtime:
        store = await stack.enter_async_context(
            Store.open(self.settings.database_url, pool_size=self.settings.database_pool_size)
        )
        redis = connect(self.settings.redis_url or "")
        stack.push_async_callback(redis.aclose)
        runtime = Runtime(
            settings=self.settings,
            registry=self.registry,
            store=store,
            log=EventLog(redis),
            signals=Signals(redis),
            dispatcher=cast(Dispatcher, self.post),
            worker_queues=queues,
        )
        stack.push_async_callback(runtime.close)
        return runtime

    async def _worker(self, stack: AsyncExitStack) -> Worker:
        runtime = await self._runtime(stack, queues=QUEUES)
        publisher = await stack.enter_async_context(Publisher(runtime.log))
        threads = ThreadPoolExecutor(4)
        stack.callback(threads.shutdown, wait=False)
        runner = Runner(runtime, publisher, models=Models(self.settings), threads=threads)
        assert runtime.signals is not None
        await stack.enter_async_context(runtime.signals.listen(runner.stop))
        return Worker(runtime, publisher, runner)

    def _answer(self, request: ModelRequest) -> Script:
        return self.turns.popleft() if self.turns else says("ok")

    # Callers.

    @property
    def runtime(self) -> Runtime:
        return self.runtimes[0]

    @property
    def processes(self) -> list[Runtime]:
        """Those of the API, then those of the workers."""
        return [*self.runtimes, *(worker.runtime for worker in self.workers)]

    async def settle(self) -> None:
        """Everything that is committed has been told."""
        for runtime in self.processes:
            await runtime.settle()

    def agent(self, name: str = "main") -> Agent:
        return self.registry.get(name)

    def caller(self, subject: str = "ann", *, agent: str = "main") -> Caller:
        return Caller(Identity(subject=subject), self.agent(agent))

    async def send(
        self, words: str = "hello", *, thread: str = "t", runtime: Runtime | None = None, **more: Any
    ) -> Any:
        """-> the reply. `more` are keys of the request, and `key`, `agent`."""
        key, agent = more.pop("key", None), more.pop("agent", "main")
        request = said(words, **more)
        return await api.send(runtime or self.runtime, self.caller(agent=agent), thread, request, key=key)

    async def run(self, words: str = "hello", *, thread: str = "t", **more: Any) -> MutationResult:
        """Sends, and waits until the thread is idle."""
        reply = await self.send(words, thread=thread, **more)
        await self.idle(thread, agent=more.get("agent", "main"))
        return cast(MutationResult, reply.result)

    async def stop(self, thread: str = "t", *, key: str | None = None, **more: Any) -> Any:
        request = StopThreadRequest.read(more)
        return await api.stop_thread(self.runtime, self.caller(), thread, request, key=key)

    async def stop_run(self, run_id: str, thread: str = "t", *, key: str | None = None, **more: Any) -> Any:
        request = StopRunRequest.read(more)
        return await api.stop_run(self.runtime, self.caller(), thread, run_id, request, key=key)

    async def respond(self, ref: dict[str, Any], response: dict[str, Any], **more: Any) -> Any:
        key, runtime = more.pop("key", None), more.pop("runtime", self.runtime)
        request = ActionRequest.read({"ref": ref, "response": response, **more})
        return await api.respond(runtime, self.caller(), ref["threadId"], request, key=key)

    async def submit(self, ref: dict[str, Any], payload: Any, **more: Any) -> Any:
        return await self.respond(ref, {"type": "submit", "payload": payload}, **more)

    async def state(self, thread: str = "t", *, agent: str = "main") -> dict[str, Any]:
        """The snapshot as it goes over the wire."""
        state = await api.get_state(self.runtime, self.caller(agent=agent), thread)
        assert state is not None, f"there is no thread {thread}"
        return cast(TransportState, state).wire()

    async def settled(self, thread: str = "t") -> dict[str, Any]:
        """The snapshot once everything that is committed has been published."""
        await self.settle()
        return await self.state(thread)

    async def thread(self, thread: str = "t") -> Thread:
        """The row of a thread of ann's."""
        async with self.runtime.store.read() as connection:
            query = select(table_of(ThreadTable)).where(table_of(ThreadTable).c.thread_id == thread)
            return Thread.of((await connection.execute(query)).mappings().one())

    async def actions(self, thread: str = "t", *, count: int = 1) -> list[dict[str, Any]]:
        """The references of the pending actions, once there are `count` of them and nothing runs."""

        async def pending() -> list[dict[str, Any]] | None:
            row = await self.thread(thread)
            return row.actions if len(row.actions) == count and row.status == "waiting" else None

        return cast(list[dict[str, Any]], await wait_until(pending, saw=lambda: self.stage.calls))

    async def idle(self, thread: str = "t", *, agent: str = "main") -> dict[str, Any]:
        return await self.has_status("idle", thread, agent=agent)

    async def has_status(self, status: str, thread: str = "t", *, agent: str = "main") -> dict[str, Any]:
        """Waits for the thread's status; -> the snapshot then."""

        async def reached() -> dict[str, Any] | None:
            state = await self.state(thread, agent=agent)
            return state if state["thread"]["status"] == status else None

        return cast(dict[str, Any], await wait_until(reached, saw=lambda: self.stage.calls))

    async def steps(self, thread: str = "t") -> list[Step]:
        """All steps of the thread, oldest first."""
        table = table_of(StepTable)
        version = (await self.thread(thread)).version
        async with self.runtime.store.read() as connection:
            query = select(table).where(table.c.version == version).order_by(table.c.number)
            return [Step.of(row) for row in (await connection.execute(query)).mappings()]

    # Time and failures.

    async def execute(self, statement: str, **values: Any) -> None:
        async with self.runtime.store.write() as connection:
            await connection.execute(text(statement), values)

    async def sweep(self, worker: int = 1) -> None:
        await sweep(self.workers[worker].runtime, self.workers[worker].runner.metrics, expire_leases=True)

    async def lapse(self) -> None:
        """Every lease runs out, and a worker's sweep finds that."""
        await self.execute("UPDATE step SET lease_expires_at = 1 WHERE state = 'running'")
        await self.sweep()

    async def renew(self) -> None:
        """Every worker hears which of its steps are not its own any more."""
        table = table_of(StepTable)
        held = [(worker, step) for worker in self.workers for step in worker.runner.held().items()]
        async with self.runtime.store.read() as connection:
            query = select(table.c.step_id, table.c.attempt).where(table.c.state == "running")
            running = {(row.step_id, row.attempt) for row in await connection.execute(query)}
        for worker, step in held:
            if step not in running:
                worker.runner.lost(*step)

    async def make_due(self) -> None:
        """What waits for its time is due now, and a worker's sweep finds that.

        Not before the transaction that made it wait has been announced: really, a sweep comes seconds later.
        """
        async with self.runtime.store.read() as connection:
            query = text("SELECT step_id FROM step WHERE state = 'pending'")
            waiting = [row.step_id for row in await connection.execute(query)]
        for runtime in self.processes:
            await asyncio.sleep(0)
            await runtime.settle()
        due = "UPDATE step SET available_at = 1, dispatch_at = 1 WHERE state = 'pending' AND step_id = :step_id"
        for step_id in waiting:
            await self.execute(due, step_id=step_id)
        await self.execute("UPDATE step SET dispatch_at = 1 WHERE state = 'suspended' AND dispatch_at IS NOT NULL")
        await self.sweep()

    async def flush_log(self) -> None:
        """Redis loses everything."""
        await self.runtime.log.redis.flushdb()


def said(words: str, **more: Any) -> SendRequest:
    """A request to send one text; `more` are keys of the request on the wire."""
    return SendRequest.read({"message": {"parts": [{"type": "text", "text": words}]}, **more})


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def calls_of(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tool parts by call id."""
    return {part["toolCallId"]: part for part in message["parts"] if "toolCallId" in part}


def of_type(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == kind]
