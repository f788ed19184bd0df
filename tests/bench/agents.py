"""The agents that are measured: models without any delay, or with a steady one, and tools that do nothing."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pai.contract import Agent, Registry, Suspension, ToolContext
from pai.models import ModelRequest, ModelResult, ScriptedModel, Turn
from pai.models.chunks import text, tool_call
from pai.models.model import Chunk, FinishReason
from pai.models.stream import GeneratedStream
from pai.protocol.usage import UsageSummary

CHUNKS = 20
STOPPED_FILE = "PAI_BENCH_STOPPED"


def stamp() -> str:
    """A text delta that says when it was made, by the clock that all processes of a host share."""
    return f"@{time.monotonic_ns()} "


def tell_stopped() -> None:
    """Tells the driver when the generator was stopped: the moment and nothing else, in a file of its own."""
    now = time.monotonic_ns()
    with open(os.environ[STOPPED_FILE], "a") as file:
        file.write(f"{now}\n")


def _latest_text(request: ModelRequest) -> str:
    user = next(message for message in reversed(request.messages) if message["role"] == "user")
    return str(user["parts"][0]["text"])


def _answer(request: ModelRequest) -> Turn:
    return Turn(chunks=text([stamp() for _ in range(CHUNKS)]))


def _hops(request: ModelRequest) -> Turn:
    """Calls a tool that does nothing five times in a row, then says so."""
    done = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        done += 1
    if done < 5:
        return Turn(chunks=tool_call(f"call-{request.message_id}", "noop", {"at": time.monotonic_ns()}))
    return Turn(chunks=text([stamp()]))


def _asks(request: ModelRequest) -> Turn:
    """Calls the tool that the text names, and answers when it has been answered."""
    if request.messages[-1]["role"] == "user":
        return Turn(chunks=tool_call(request.message_id, _latest_text(request), {}))
    return _answer(request)


class SteadyModel:
    """`rate/count` in the user's text: that many chunks a second, that many chunks in all."""

    name = "steady"
    provider = "bench"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[GeneratedStream]:
        rate, _, count = _latest_text(request).partition("/")
        async with aclosing(GeneratedStream(lambda stream: self._play(float(rate), int(count), stream))) as opened:
            yield opened

    async def _play(self, rate: float, count: int, stream: GeneratedStream) -> AsyncGenerator[Chunk, None]:
        yield {"type": "text-start", "id": "t"}
        begin, index = time.monotonic(), 0
        try:
            while index < count:
                await asyncio.sleep(max(begin + index / rate - time.monotonic(), 0))
                yield {"type": "text-delta", "id": "t", "delta": stamp()}
                index += 1
        finally:
            if index < count:
                tell_stopped()
        yield {"type": "text-end", "id": "t"}
        stream.finish(ModelResult(usage=UsageSummary(), finish_reason=FinishReason.stop))


quick = Agent("quick", model=ScriptedModel(_answer, delay=None))
steady = Agent("steady", model=SteadyModel())
hops = Agent("hops", model=ScriptedModel(_hops, delay=None))


@hops.tool
async def noop(at: int) -> int:
    """Does nothing."""
    return at


asks = Agent("asks", model=ScriptedModel(_asks, delay=None))
approval = Suspension("approval")


@asks.tool(suspensions=[approval])
async def approve(ctx: ToolContext) -> Any:
    """Waits for an answer."""
    return await ctx.suspend(approval)


asks.client_tool("pick", description="Waits for its output.")

registry = Registry(quick, steady, hops, asks)
