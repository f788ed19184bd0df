"""Two agents that are alike, with everything that has an id, and callers who say who they are: to test isolation."""

from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from pai import (
    Agent,
    CommandContext,
    Identity,
    Registry,
    Suspension,
    ToolContext,
    ToolData,
    TriggerContext,
    TriggerInput,
)


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool


class Note(BaseModel):
    percent: int


class Why(BaseModel):
    reason: str


approval = Suspension("approval", input=Draft, resume=Decision)


def alike(name: str) -> Agent:
    agent = Agent(name, model="demo")

    @agent.tool(suspensions=[approval], data={"progress": ToolData(Note, client_writable=True)})
    async def publish_post(ctx: ToolContext, title: str) -> bool:
        """Waits for an answer."""
        return (await ctx.suspend(approval, Draft(title=title))).approved

    @agent.command
    async def archive(ctx: CommandContext, args: Why) -> str:
        """Says the thread's id."""
        return ctx.thread.thread_id

    @agent.trigger("nudge", on_call=True)
    async def nudge(ctx: TriggerContext, order: dict[str, Any]) -> TriggerInput:
        """Sends to the thread that the caller names."""
        return TriggerInput(text="nudged", thread_id=ctx.thread_id)

    return agent


registry = Registry(alike("main"), alike("other"))


async def who(request: Request) -> Identity | None:
    """Whoever the header names; a trusted one when it says so."""
    user = request.headers.get("x-user")
    return None if user is None else Identity(subject=user, trusted="x-trusted" in request.headers)
