"""Agents for tests that break things: a storyteller who can be held in mid-word, and tools that leave a trace."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from pai.contract import Agent, Registry, ToolContext
from pai.models import ModelRequest, ModelResult
from pai.models.chunks import tool_call
from pai.models.model import Chunk, FinishReason
from pai.models.stream import GeneratedStream
from pai.protocol.usage import UsageSummary

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
GO = "go"


def trace(name: str) -> bool:
    """Leaves one file per execution, which survives the process and says which it was. -> whether it is the first."""
    first = not any(FOLDER.glob(f"{name}@*"))
    (FOLDER / f"{name}@{uuid4().hex}").write_text(str(os.getpid()))
    return first


async def held() -> None:
    """Returns when the test says go."""
    while not (FOLDER / GO).exists():  # noqa: ASYNC110  (the test is another process)
        await asyncio.sleep(0.01)


def words(count: int) -> str:
    """What `tell` says."""
    return "".join(f"w{number} " for number in range(count))


def _asked(request: ModelRequest) -> tuple[list[str], int]:
    """The parts of the latest user text, and how many model steps followed it."""
    steps = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            return str(message["parts"][0]["text"]).split(" then "), steps
        steps += 1
    return [""], steps


class ChaosModel:
    """Each ` then ` of the text is a model step: `tell N D` says N words, D ms apart; `call TOOL ...` calls tools.

    A step may do both. `tell N D held` stops half way until the test says go; a later attempt neither stops nor waits
    between words.
    """

    name = "chaos"
    provider = "chaos"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[GeneratedStream]:
        texts, steps = _asked(request)
        script = texts[steps].split() if steps < len(texts) else ["tell", "3", "0"]
        yield GeneratedStream(lambda stream: self._play(script, request, stream))

    async def _play(
        self, script: list[str], request: ModelRequest, stream: GeneratedStream
    ) -> AsyncGenerator[Chunk, None]:
        first = trace(f"model-{request.message_id}")
        told, _, called = " ".join(script).partition("call ")
        if told:
            _, count, delay, *how = told.split()
            yield {"type": "reasoning-start", "id": "r"}
            yield {"type": "reasoning-delta", "id": "r", "delta": "Let me tell."}
            yield {"type": "reasoning-end", "id": "r"}
            yield {"type": "text-start", "id": "t"}
            for number in range(int(count)):
                if first and how and number == int(count) // 2:
                    trace("half-way")
                    await held()
                if first:
                    await asyncio.sleep(int(delay) / 1000)
                yield {"type": "text-delta", "id": "t", "delta": f"w{number} "}
            yield {"type": "text-end", "id": "t"}
        calls = called.split()
        for index, name in enumerate(calls):
            for chunk in tool_call(f"{request.message_id}-{index}", name, {"mark": f"m{index}"}, deltas=3):
                yield chunk
        reason = FinishReason.tool_calls if calls else FinishReason.stop
        stream.finish(ModelResult(usage=UsageSummary(input_tokens=1, output_tokens=1), finish_reason=reason))


agent = Agent("main", model=ChaosModel())


@agent.tool
async def once(ctx: ToolContext, mark: str) -> str:
    """A call that died is not run again."""
    trace("once")
    trace(f"{ctx.agent}-once")
    await asyncio.sleep(0.02)
    return f"once {mark}"


@agent.tool
async def hold(mark: str) -> str:
    """As `once`, and waits for the test."""
    trace("hold")
    await held()
    return f"hold {mark}"


@agent.tool(max_attempts=3)
async def again(ctx: ToolContext, mark: str) -> str:
    """May be run again, under the same key: only the first execution waits for the test."""
    if trace(f"again-{ctx.idempotency_key}"):
        trace("again")
        await held()
    return f"again {mark}"


@agent.tool
async def exit_beside(mark: str) -> str:
    """Begins what would end the process, and does not wait for it."""

    async def leave() -> None:
        sys.exit(2)

    await asyncio.wait([asyncio.create_task(leave())])
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0.01)
    return f"exit {mark}"


@agent.tool(queue="slow")
async def routed(mark: str) -> str:
    """Belongs on a worker of its own."""
    trace("routed")
    return f"routed {mark}"


registry = Registry(agent)
"""What the tests' clusters serve."""

both = Registry(agent, Agent("stranger", model=ChaosModel()))
"""A newer deployment: it knows one agent more."""


def on_queue(name: str) -> Agent:
    """An agent whose steps go to a queue of its own, so that a test says which worker gets them."""
    made = Agent(name, model=ChaosModel(), queue=name)
    made.tool(once)
    return made


apart = Registry(*(on_queue(f"q{number}") for number in range(12)))
"""Many agents that do the same, each on workers of its own."""
