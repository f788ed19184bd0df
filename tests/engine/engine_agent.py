"""The agent of the engine's tests: a tool for everything that a tool can do, and a stage that sees and holds them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from pai import Agent, Registry, Suspension, ToolContext, ToolError
from pai.contract import PendingAction, RunContext, RunOutcome, StepPreparation, ToolData
from pai.models import ScriptedModel


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool


class Odd(BaseException):
    pass


ESCAPES: dict[str, BaseException] = {
    "exit": SystemExit(2),
    "interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError(),
    "generator": GeneratorExit(),
    "group": BaseExceptionGroup("two", [Odd(), ValueError()]),
    "base": Odd(),
    "stop": StopIteration("nothing more"),
}


class Stage:
    """`calls` are (tool, what it was given); `gate(name)` is what a tool waits for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.values: dict[str, Any] = {}
        self.preparation: StepPreparation | None = None

    def gate(self, name: str) -> asyncio.Event:
        return self.gates[name]

    def count(self, tool: str) -> int:
        return sum(name == tool for name, _ in self.calls)

    async def hold(self, tool: str, name: str) -> None:
        self.calls.append((tool, name))
        await self.gate(name).wait()


approval = Suspension("approval", input=Draft, resume=Decision)
second = Suspension("second", input=Draft, resume=Decision)
brief = Suspension("brief", timeout=timedelta(hours=1))


def registry_of(model: ScriptedModel, stage: Stage) -> Registry:
    return Registry(_main(model, stage), _hooked(model, stage))


def _main(model: ScriptedModel, stage: Stage) -> Agent:
    agent = Agent("main", model=model, instructions="Be brief.", max_steps=5, ui_data={"chart": dict[str, Any]})
    _plain_tools(agent, stage)
    _lasting_tools(agent, stage)
    _suspending_tools(agent, stage)
    note = {"note": ToolData(str, client_writable=True), "secret": ToolData(str)}
    agent.client_tool("pick", input=Draft, output=Decision, description="Pick something.", data=note)
    agent.external_tool("ticket", output=int, description="Open a ticket.", timeout=timedelta(hours=2))
    return agent


def _plain_tools(agent: Agent, stage: Stage) -> None:
    @agent.tool
    def add(left: int, right: int) -> int:
        """Add two numbers, in a thread."""
        return left + right

    @agent.tool
    async def echo(words: str) -> str:
        """Say it again."""
        stage.calls.append(("echo", words))
        return words

    @agent.tool
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("secret details")

    @agent.tool
    async def escape(how: str) -> str:
        """Raise what is no Exception."""
        raise ESCAPES[how]

    @agent.tool
    def escape_in_thread(how: str) -> str:
        """Raise what is no Exception, or is never delivered from a thread."""
        raise ESCAPES[how]

    @agent.tool
    async def loud() -> str:
        """Fail with more than anybody reads."""
        raise ToolError("x" * 1_000_000, code="c" * 1_000_000, detail=["y" * 10_000])

    @agent.tool(timeout=timedelta(milliseconds=100))
    async def restless() -> AsyncIterator[int]:
        """Yield for ever, and never wait for anything."""
        number = 0
        while True:
            number += 1
            yield number

    @agent.tool(timeout=timedelta(milliseconds=100), data={"notes": str})
    async def chatty(ctx: ToolContext) -> str:
        """Show data for ever, and never wait for anything."""
        while True:
            await ctx.data("notes", "again")

    @agent.tool
    async def refuse() -> str:
        """Fail with an error for the model."""
        raise ToolError("No such city.", code="CITY_UNKNOWN", detail={"city": "Atlantis"})

    @agent.tool(timeout=timedelta(milliseconds=30))
    async def slow() -> str:
        """Take too long."""
        await asyncio.Event().wait()
        return "never"

    @agent.tool
    async def wrong() -> int:
        """Return something else than declared."""
        return "no number"  # type: ignore[return-value]

    @agent.tool
    async def huge(size: int) -> str:
        """Return a lot."""
        return "x" * size

    @agent.tool
    async def given() -> Any:
        """Return what the stage has."""
        return stage.values["given"]


def _lasting_tools(agent: Agent, stage: Stage) -> None:
    @agent.tool
    async def hold(name: str) -> str:
        """Wait for the gate; may not run twice."""
        await stage.hold("hold", name)
        return name

    @agent.tool
    async def tidy() -> str:
        """Clean up when it is cancelled, which takes its time."""
        try:
            await stage.hold("tidy", "begun")
        except asyncio.CancelledError:
            await stage.hold("tidy", "cleaning")
            stage.calls.append(("tidy", "clean"))
            raise
        return "never"

    @agent.tool(max_attempts=3)
    async def hold_again(ctx: ToolContext, name: str) -> str:
        """Wait for the gate; may run again."""
        stage.calls.append(("key", ctx.idempotency_key))
        await stage.hold("hold_again", name)
        return f"{name} {ctx.tries}"

    @agent.tool(max_attempts=2)
    async def fail_once(ctx: ToolContext) -> str:
        """Fail the first time."""
        stage.calls.append(("fail_once", ctx.idempotency_key))
        if ctx.tries == 1:
            raise RuntimeError("the first time")
        return "well"

    @agent.tool
    async def count(to: int) -> AsyncIterator[int]:
        """Count, showing every number."""
        for number in range(1, to + 1):
            yield number
            await stage.hold("count", f"count {number}")

    @agent.tool(data={"notes": str}, suspensions=[approval])
    async def bulky(ctx: ToolContext, how: str) -> str:
        """Do something with more than may be stored."""
        match how:
            case "data":
                await ctx.data("notes", "x" * 3000)
            case "part":
                await ctx.write_data("chart", {"bars": "x" * 3000})
            case "input":
                await ctx.suspend(approval, Draft(title="x" * 3000))
        return how

    @agent.tool(data={"progress": int})
    async def work(ctx: ToolContext, name: str) -> str:
        """Show progress, a part, something transient; wait; show more."""
        await ctx.data("progress", 1)
        await ctx.write_data("chart", {"bars": 1}, id="chart-1")
        await ctx.write_data("chart", {"bars": 0}, transient=True)
        await stage.hold("work", name)
        await ctx.data("progress", 2)
        return name

    @agent.tool(max_attempts=3)
    async def effects(ctx: ToolContext, safe: bool) -> str:
        """Two remembered effects, and a gate inside of the second."""

        async def first() -> int:
            stage.calls.append(("first", None))
            return 1

        async def second_effect() -> int:
            await stage.hold("second", "second")
            return 2

        one = await ctx.step("first", first)
        two = await ctx.step("second", second_effect, retry_safe=safe)
        return f"{one} {two}"


def _suspending_tools(agent: Agent, stage: Stage) -> None:
    @agent.tool(suspensions=[approval])
    async def publish(ctx: ToolContext, title: str) -> str:
        """Publish when somebody approves."""

        def prepare() -> str:
            stage.calls.append(("prepare", title))
            return title.upper()

        prepared = await ctx.step("prepare", prepare)
        decision = await ctx.suspend(approval, Draft(title=stage.values.get("title", title)))
        stage.calls.append(("publish", decision.approved))
        await stage.gate(f"publish {title}").wait() if stage.values.get("gated") else None
        return f"{prepared} {decision.approved}"

    @agent.tool(suspensions=[approval, second])
    async def publish_twice(ctx: ToolContext, title: str) -> str:
        """Two approvals, one after the other."""
        one = await ctx.suspend(approval, Draft(title=title))
        two = await ctx.suspend(second, Draft(title=f"{title} again"))
        return f"{one.approved} {two.approved}"

    @agent.tool(suspensions=[approval])
    def publish_in_thread(ctx: ToolContext, title: str) -> str:
        """A function that waits, in a thread."""
        decision = ctx.wait(ctx.suspend(approval, Draft(title=title)))
        return f"{title} {decision.approved}"

    @agent.tool(suspensions=[approval])
    async def publish_slowly(ctx: ToolContext, title: str) -> AsyncIterator[str]:
        """Shows something, waits, shows more."""
        yield "asked"
        decision = await ctx.suspend(approval, Draft(title=title))
        yield f"{title} {decision.approved}"

    @agent.tool(suspensions=[approval, second])
    async def publish_both(ctx: ToolContext, title: str) -> str:
        """Asks two things at once, and hides what goes wrong."""
        try:
            one, two = await asyncio.gather(
                ctx.suspend(approval, Draft(title=title)), ctx.suspend(second, Draft(title=title))
            )
        except Exception:
            return "wrong"
        return f"{one.approved} {two.approved}"

    @agent.tool(suspensions=[approval, second])
    async def publish_in_group(ctx: ToolContext, title: str) -> str:
        """Ask two people at once, in a task group."""
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.suspend(approval, Draft(title=title)))
            other = group.create_task(ctx.suspend(second, Draft(title=title)))
        return f"{one.result().approved} {other.result().approved}"

    @agent.tool(suspensions=[approval], data={"notes": str})
    async def publish_with_notes(ctx: ToolContext, title: str) -> str:
        """Shows notes before it asks, in a newer version."""
        if stage.values.get("newer"):
            await ctx.data("notes", "see below")
        decision = await ctx.suspend(approval, Draft(title=title))
        return f"{title} {decision.approved}"

    @agent.tool(suspensions=[brief])
    async def ask(ctx: ToolContext) -> Any:
        """Ask anything; not for ever."""
        return await ctx.suspend(brief)


def _hooked(model: ScriptedModel, stage: Stage) -> Agent:
    agent = Agent(
        "hooked", model=model, run_metadata=dict[str, Any], reasoning_summaries=lambda ctx: stage.values.get("summary")
    )
    agent.client_tool("pick", input=Draft, output=Decision, description="Pick something.")

    @agent.on_run_start
    async def started(ctx: RunContext) -> None:
        stage.calls.append(("started", ctx.run_id))
        if "start" in stage.values:
            stage.values["start"](ctx)

    @agent.prepare_step
    async def prepared(ctx: RunContext) -> StepPreparation | None:
        stage.calls.append(("prepared", ctx.step))
        return stage.preparation

    @agent.on_action_pending
    async def pending(ctx: RunContext, action: PendingAction) -> None:
        stage.calls.append(("pending", action))

    @agent.on_run_finish
    async def finished(ctx: RunContext, outcome: RunOutcome) -> None:
        stage.calls.append(("finished", outcome))
        if "finish" in stage.values:
            stage.values["finish"](ctx)

    return agent
