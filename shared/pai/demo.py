"""The built-in agent `main`: what PAI can do, on a model that needs no key and no network."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from pai import Agent, CommandContext, Registry, Suspension, ToolContext, ToolData, ToolError


class Weather(BaseModel):
    city: str
    celsius: int
    sky: Literal["sunny", "cloudy", "rainy"]


class Draft(BaseModel):
    title: str
    body: str


class Decision(BaseModel):
    approved: bool
    comment: str | None = None


class Published(BaseModel):
    published: bool
    url: str | None = None
    comment: str | None = None


class Progress(BaseModel):
    percent: int = Field(ge=0, le=100)


class PickFile(BaseModel):
    purpose: str


class PickedFile(BaseModel):
    filename: str


class ArchiveResult(BaseModel):
    archived: bool


agent = Agent(
    "main",
    model="demo",
    instructions="You show what this server can do.",
    title="Demo",
    description="Answers without a model: asks for the weather, counts, publishes with approval, picks a file.",
)

approval = Suspension("approval", input=Draft, resume=Decision, timeout=timedelta(days=7))


@agent.tool
async def get_weather(city: str) -> Weather:
    """The weather in a city, as it is today."""
    if not city.strip():
        raise ToolError("Name a city.", code="CITY_MISSING")
    value = sum(city.encode())
    return Weather(city=city, celsius=value % 30, sky=("sunny", "cloudy", "rainy")[value % 3])


@agent.tool(data={"progress": ToolData(Progress)})
async def count(
    ctx: ToolContext,
    to: Annotated[int, Field(ge=1, le=100)] = 10,
    seconds: Annotated[float, Field(ge=0, le=5)] = 0.2,
) -> AsyncIterator[int]:
    """Count up, with a pause between numbers, and show how far it is."""
    for number in range(1, to + 1):
        await ctx.data("progress", Progress(percent=100 * number // to))
        yield number
        await asyncio.sleep(seconds)


@agent.tool(suspensions=[approval])
async def publish_post(ctx: ToolContext, title: str, body: str) -> Published:
    """Publish a post. A person has to approve it first."""
    decision = await ctx.suspend(approval, Draft(title=title, body=body))
    if not decision.approved:
        return Published(published=False, comment=decision.comment)
    url = await ctx.step("publish", post_to_cms, title, body)
    return Published(published=True, url=url, comment=decision.comment)


async def post_to_cms(title: str, body: str) -> str:
    """Stands for the call that must not happen twice."""
    return f"https://example.com/posts/{'-'.join(title.lower().split()) or 'untitled'}"


agent.client_tool("pick_file", input=PickFile, output=PickedFile, description="Let the person choose a file.")
agent.external_tool("open_ticket", input=Draft, output=str, description="Open a ticket; its number comes back later.")


@agent.command
async def archive(ctx: CommandContext) -> ArchiveResult:
    """Mark the thread as archived."""
    await ctx.thread.update_metadata({"archived": True})
    return ArchiveResult(archived=True)


registry = Registry(agent)
