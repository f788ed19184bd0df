"""One thread to which anything may happen, in an engine whose processes are replaced meanwhile."""

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from alarms import Alarms
from engine_parts import Engine
from engine_rules import check_rules
from sqlalchemy import select
from test_engine_random import refused_or_done

from pai.engine import api
from pai.models import ModelError, ModelRequest
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Script, Turn
from pai.settings import Settings
from pai.store.tables import Thread, ThreadTable, table_of
from support.strict_provider import StrictProviders
from support.waiting import wait_until

T = TypeVar("T")


class World:
    """The thread, those that triggers begin beside it, and what was ever asked of people and of models."""

    def __init__(self, engine_settings: Settings, runner: asyncio.Runner) -> None:
        self.settings = engine_settings
        self.runner = runner
        self.numbers = itertools.count()
        self.turns: deque[Any] = deque()
        self.asked: list[dict[str, Any]] = []
        self.histories: list[list[Any]] = []
        self.ends = False
        self.gate_open = False
        self.thread = "t"
        self.alarms = Alarms()
        self.stack = AsyncExitStack()
        self.engine: Engine
        self.providers: StrictProviders

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self) -> None:
        self.providers = await self.stack.enter_async_context(StrictProviders.open())
        await self.start()

    async def start(self) -> None:
        """New processes on what the old ones left."""
        self.processes = await self.stack.enter_async_context(AsyncExitStack())
        self.engine = Engine(self.settings)
        self.alarms.attach(self.engine.agent())
        await self.processes.enter_async_context(self.engine.running())
        self.engine.model._answer = self.answer
        for name in ("a", "count 1", "count 2"):
            self.engine.stage.gate(name).set()
        if self.gate_open:
            self.engine.stage.gate("h").set()

    def answer(self, request: ModelRequest) -> Script:
        self.histories.append(list(request.messages))
        turn = "words" if self.ends or not self.turns else self.turns.popleft()
        chunks = [*reasoning(["a", "b"], id=f"r{next(self.numbers)}"), *text([" ", "words"])]
        if isinstance(turn, bool):
            return Turn(chunks=chunks, error=ModelError("It broke.", retryable=turn), error_at=next(self.numbers) % 8)
        for name, input in () if turn == "words" else turn:
            chunks += tool_call(f"c{next(self.numbers)}", name, input, deltas=2)
        return Turn(chunks=chunks)

    async def tick(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        await self.engine.settle()

    async def threads(self) -> list[Thread]:
        async with self.engine.runtime.store.read() as connection:
            return [Thread.of(row) for row in (await connection.execute(select(table_of(ThreadTable)))).mappings()]

    async def actions(self) -> list[dict[str, Any]]:
        """Those of all threads."""
        with suppress(Exception):
            actions = [ref for row in await self.threads() for ref in row.actions]
            self.asked += [ref for ref in actions if ref not in self.asked]
            return actions
        return []

    async def rest(self) -> None:
        """Dismisses everything until nothing happens any more."""
        self.gate_open = True
        self.engine.stage.gate("h").set()
        await self.alarms.rest(self.engine)

        async def rests() -> bool:
            threads = await self.threads()
            for ref in (ref for row in threads for ref in row.actions):
                await refused_or_done(self.engine.respond(ref, {"type": "cancel"}))
            await self.engine.make_due()
            return all(row.status == "idle" and not row.queued for row in threads)

        await wait_until(rests, saw=lambda: self.engine.stage.calls)
        for worker in self.engine.workers:
            await worker.quiet()
        await self.settle()

    async def end(self) -> None:
        """Whatever was done: it comes to rest, all rules hold, every history was valid, and the thread goes on."""
        self.ends = True
        await self.rest()
        await check_rules(self.engine)
        await self.engine.run("and then?", thread=self.thread)
        state = await self.engine.state(self.thread)
        assert all(run["status"] in ("completed", "failed", "cancelled") for run in state["runs"])
        assert state["runs"][-1]["status"] == "completed"
        for history in self.histories[-12:]:
            await self.providers.accept(history)
        self.histories.clear()
        self.turns.clear()
        self.asked.clear()
        self.ends = self.gate_open = False
        for row in await self.threads():
            await self.delete(row.thread_id)

    async def state(self) -> dict[str, Any] | None:
        found = await api.get_state(self.engine.runtime, self.engine.caller(), self.thread)
        return None if found is None else found.wire()  # type: ignore[union-attr]

    async def delete(self, thread: str) -> None:
        await api.delete(self.engine.runtime, self.engine.caller(), thread)
        await self.settle()
