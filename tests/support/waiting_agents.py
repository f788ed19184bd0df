"""An agent whose tools wait for people, for tests with real processes: what runs leaves a trace (`chaos_agents`)."""

from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from pai.contract import Agent, Registry, Suspension, ToolContext
from pai.protocol.identity import Identity
from support.chaos_agents import ChaosModel, trace


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool
    comment: str | None = None


async def by_header(request: Request) -> Identity:
    """Whoever the header names, or ann."""
    return Identity(subject=request.headers.get("x-user", "ann"))


approval = Suspension("approval", input=Draft, resume=Decision)
second = Suspension("second", input=Draft, resume=Decision)

agent = Agent("main", model=ChaosModel())


@agent.tool(suspensions=[approval])
async def approve(ctx: ToolContext, mark: str) -> str:
    """Do something when somebody approves."""
    decision = await ctx.suspend(approval, Draft(title=mark))
    return f"{mark} {decision.comment or decision.approved}"


@agent.tool(suspensions=[approval, second])
async def twice(ctx: ToolContext, mark: str) -> str:
    """Two approvals, one after the other, with something done before each and after both."""
    await ctx.step("before", trace, "before")
    one = await ctx.suspend(approval, Draft(title=mark))
    await ctx.step("between", trace, "between")
    two = await ctx.suspend(second, Draft(title=mark))
    await ctx.step("after", trace, "after")
    return f"{one.comment} {two.comment}"


@agent.tool(suspensions=[approval])
async def unstable(ctx: ToolContext, mark: str) -> str:
    """Asks something else whenever it is entered."""
    decision = await ctx.suspend(approval, Draft(title=f"{mark} {trace('entered')}"))
    trace("applied")
    return f"{mark} {decision.approved}"


agent.client_tool("pick", output=Decision, description="Pick something.")
agent.external_tool("ticket", output=dict[str, Any], description="Open a ticket.")

registry = Registry(agent)
