"""Agents that start threads on each other, for the tests of child threads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from engine_agent import Stage
from engine_parts import Engine, calls_of, text_of
from engine_rules import check_rules
from sqlalchemy import select
from sqlalchemy import text as sql

from pai import Agent, Registry, Suspension, ToolContext
from pai.engine import api
from pai.engine.delivery import deliver_due
from pai.engine.runtime import Caller
from pai.models import ModelRequest, ScriptedModel
from pai.models.chunks import tool_call
from pai.models.scripted import Script, says
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai.store.tables import Flag, FlagTable, table_of

go_on = Suspension("go_on")


def family_of(parent: ScriptedModel, child: ScriptedModel, stage: Stage) -> Registry:
    """`main` starts threads on `helper`; both have their own model."""
    main = Agent("main", model=parent, max_steps=20)
    helper = Agent("helper", model=child, max_steps=20)

    @main.tool(max_attempts=3)
    async def delegate(ctx: ToolContext, work: str, agent: str = "helper") -> dict[str, Any]:
        """Have another agent do it, and wait."""
        stage.calls.append(("delegate", work))
        started = await ctx.start_thread(agent, work, category="work", hidden=stage.values.get("hidden", True))
        stage.calls.append(("started", started.thread_id))
        result = await started.result(timeout=stage.values.get("timeout"))
        stage.calls.append(("result", result))
        return {"status": result.status, "text": result.text}

    @main.tool
    async def both(ctx: ToolContext, first: str, second: str) -> str:
        """Two at once, the second awaited first, the first twice."""
        one = await ctx.start_thread("helper", first)
        two = await ctx.start_thread("helper", second)
        later = await two.result()
        texts = [later.text, (await one.result()).text, (await one.result()).text]
        return " ".join(texts)

    @main.tool(suspensions=[go_on])
    async def together(ctx: ToolContext, first: str, second: str) -> str:
        """Two at once, and a person, all awaited at once."""
        one = await ctx.start_thread("helper", first)
        two = await ctx.start_thread("helper", second)
        answers = await asyncio.gather(one.result(), ctx.suspend(go_on), two.result())
        return f"{answers[0].text} {answers[1]} {answers[2].text}"

    @main.tool
    async def start_dirty(ctx: ToolContext) -> str:
        """With texts that no database takes."""
        dirty = "a\0b\ud800"
        child = await ctx.start_thread("helper", dirty, title=dirty, category=dirty, metadata={"x": dirty})
        return (await child.result()).text

    @main.tool
    async def leave(ctx: ToolContext, work: str, agent: str = "helper") -> str:
        """Start it and go on."""
        return (await ctx.start_thread(agent, work, hidden=stage.values.get("hidden", True))).thread_id

    @helper.tool
    async def again(ctx: ToolContext, work: str) -> str:
        """In a circle."""
        return (await (await ctx.start_thread("helper", work)).result(timeout=timedelta(hours=1))).text

    @helper.tool
    async def hold() -> str:
        """Held by the test."""
        await stage.hold("hold", "hold")
        return "held"

    helper.client_tool("pick", input=dict[str, Any], output=dict[str, Any], description="Pick something.")
    return Registry(main, helper)


TRUSTED = Identity(subject="ann", trusted=True)


class Family:
    """An engine whose `helper` says `turns`; when there are none it says `done: ` and what it was asked."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.turns: list[Script] = []
        self.model = ScriptedModel(self._answer)
        engine.registry = family_of(engine.model, self.model, engine.stage)

    def _answer(self, request: ModelRequest) -> Script:
        if self.turns:
            return self.turns.pop(0)
        asked = [message for message in request.messages if message["role"] == "user"]
        return says("done: " + text_of(asked[-1]))

    def caller(self, agent: str = "helper") -> Caller:
        return Caller(TRUSTED, self.engine.agent(agent))

    async def children(self, *, busy: bool | None = None) -> list[Any]:
        page = await api.list_all_threads(self.engine.runtime, TRUSTED, agent="helper", limit=100)
        return [item for item in page.items if busy is None or (item.status != "idle") == busy]

    async def rows(self, table: str) -> int:
        async with self.engine.runtime.store.read() as connection:
            return int((await connection.execute(sql(f"SELECT count(*) FROM {table}"))).scalar_one())

    def mute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every process dies before it delivers its flags; the sweep finds them."""
        for runtime in self.engine.processes:
            monkeypatch.setattr(runtime, "deliver", lambda flags: None)

    async def flags(self) -> list[Flag]:
        async with self.engine.runtime.store.read() as connection:
            return [Flag.of(row) for row in (await connection.execute(select(table_of(FlagTable)))).mappings()]

    async def deliver_late(self) -> None:
        """The sweep finds every flag."""
        await self.engine.execute("UPDATE flag SET due_at = 1")
        await deliver_due(self.engine.workers[0].runtime)

    async def settle(self) -> None:
        await self.engine.settle()


@asynccontextmanager
async def family_running(settings: Settings) -> AsyncIterator[Family]:
    """With its rules checked at the end."""
    engine = Engine(settings)
    family = Family(engine)
    async with engine.running():
        yield family
        await family.settle()
        await check_rules(engine)


def delegates(engine: Engine, work: str = "dig", **more: Any) -> None:
    """The parent's model will call `delegate`, as `c1`."""
    engine.turns.append(tool_call("c1", "delegate", {"work": work, **more}))


async def output_of(family: Family, call: str = "c1") -> Any:
    """What a call of the parent's first step came to, once the parent is idle."""
    state = await family.engine.idle()
    return calls_of(state["messages"][1])[call].get("output")
