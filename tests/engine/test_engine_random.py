"""Whatever is done to a thread, in any order and at the same time: the rules hold, and it comes to rest."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from engine_parts import Engine
from engine_rules import check_rules

from pai.engine import api
from pai.models import ModelError, ModelRequest
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Script, Turn
from pai.protocol.errors import (
    ActionNotPending,
    NotFound,
    QueueFull,
    QueueItemAdmitted,
    RegenerateInvalid,
    RunNotActive,
    ThreadBusy,
)
from pai.protocol.requests import RegenerateRequest, RenameRequest
from pai.protocol.usage import UsageSummary
from support.waiting import wait_until

TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"left": 1, "right": 2}),
    ("echo", {"words": "x"}),
    ("broken", {}),
    ("fail_once", {}),
    ("publish", {"title": "a"}),
    ("publish_twice", {"title": "a"}),
    ("pick", {"title": "a"}),
    ("ticket", {}),
    ("work", {"name": "a"}),
    ("count", {"to": 2}),
    ("nobody", {}),
]


async def refused_or_done(operation: Awaitable[Any]) -> None:
    """An operation may be refused with a reason; anything else is a bug."""
    with contextlib.suppress(
        ThreadBusy, QueueFull, ActionNotPending, NotFound, QueueItemAdmitted, RegenerateInvalid, RunNotActive
    ):
        await operation


class Chaos:
    """One thread and everything that may happen to it, by one seed."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.numbers = iter(range(10**6))
        self.ends = False
        engine.model._answer = self.answer
        for name in ("a", "count 1", "count 2"):
            engine.stage.gate(name).set()

    def answer(self, request: ModelRequest) -> Script:
        """Calls some tools, or says something; may fail; never for ever."""
        usage = UsageSummary(input_tokens=1, output_tokens=1, total_tokens=2)
        chunks = [*reasoning(["a", "b"], id=f"r{next(self.numbers)}"), *text(["some ", "words"])]
        if not self.ends and self.random.random() < 0.6:
            for _ in range(self.random.randint(1, 3)):
                name, input = self.random.choice(TOOLS)
                chunks += tool_call(f"c{next(self.numbers)}", name, input, deltas=2)
        error: ModelError | None = None
        if not self.ends and self.random.random() < 0.15:
            error = ModelError("It broke.", retryable=self.random.random() < 0.7)
        return Turn(chunks=chunks, usage=usage, error=error, error_at=self.random.randint(0, len(chunks)))

    async def operate(self) -> None:
        operations = [self.send] * 4 + [self.respond] * 4 + [self.stop, self.lapse, self.due, self.regenerate]
        operations += [self.recall, self.look, self.flush, self.rename]
        await refused_or_done(self.random.choice(operations)())

    async def send(self) -> None:
        mode = self.random.choice([None, "queue", "steer"])
        queue = {} if mode is None else {"queue": {"mode": mode, "merge": self.random.choice(["none", "last"])}}
        runtime = self.random.choice(self.engine.runtimes)
        await self.engine.send(f"m{next(self.numbers)}", runtime=runtime, **queue)

    async def respond(self) -> None:
        actions = (await self.engine.thread()).actions
        if not actions:
            return
        ref = self.random.choice(actions)
        payload: Any = 5 if ref["toolName"] == "ticket" else {"approved": True}
        answers: list[dict[str, Any]] = [{"type": "submit", "payload": payload}] * 3
        answers += [{"type": "cancel"}, {"type": "fail", "error": {"message": "no"}}]
        await self.engine.respond(ref, self.random.choice(answers))

    async def stop(self) -> None:
        await self.engine.stop(continueWith=self.random.choice(["none", "steer", "all"]))

    async def lapse(self) -> None:
        await self.engine.lapse()

    async def due(self) -> None:
        await self.engine.make_due()

    async def flush(self) -> None:
        if self.random.random() < 0.3:
            await self.engine.flush_log()

    async def look(self) -> None:
        await self.engine.state()

    async def rename(self) -> None:
        request = RenameRequest(title=f"title {next(self.numbers)}")
        await api.rename(self.engine.runtime, self.engine.caller(), "t", request)

    async def recall(self) -> None:
        items = (await self.engine.state())["queue"]["items"]
        if items:
            name = self.random.choice(items)["queueItemId"]
            await api.recall(self.engine.runtime, self.engine.caller(), "t", name)

    async def regenerate(self) -> None:
        messages = (await self.engine.state())["messages"]
        users = [message["id"] for message in messages if message["role"] == "user"]
        if users:
            request = RegenerateRequest.read({"messageId": self.random.choice(users)})
            await api.regenerate(self.engine.runtime, self.engine.caller(), "t", request)

    async def rest(self) -> None:
        """Answers everything until nothing happens any more."""
        self.ends = True

        async def rests() -> bool:
            row = await self.engine.thread()
            for ref in row.actions:
                await refused_or_done(self.engine.respond(ref, {"type": "cancel"}))
            await self.engine.make_due()
            return row.status == "idle" and not row.queued

        async def seen() -> Any:
            return await self.engine.thread(), await self.engine.steps()

        try:
            await wait_until(rests)
        except AssertionError as error:
            raise AssertionError(f"it never rests: {await seen()}") from error


@pytest.mark.parametrize("seed", range(8))
async def test_a_thread_survives_everything_and_comes_to_rest(engine: Engine, seed: int) -> None:
    await engine.send("first")
    chaos = Chaos(engine, seed)
    for _ in range(12):
        await asyncio.gather(*(chaos.operate() for _ in range(3)))
        for _ in range(chaos.random.randint(0, 30)):
            await asyncio.sleep(0)
    await chaos.rest()
    for worker in engine.workers:
        await worker.quiet()
        await worker.runtime.settle()
    state = await engine.state()
    assert all(run["status"] in ("completed", "failed", "cancelled") for run in state["runs"])
    await check_rules(engine)
