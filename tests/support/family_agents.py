"""Agents that have a helper do their work, for tests with real processes: what runs leaves a trace (`chaos_agents`)."""

from pai.contract import Agent, Registry, ToolContext
from support.chaos_agents import ChaosModel, trace

helper = Agent("helper", model=ChaosModel(), queue="helper")

PARENTS = ("main", "left", "right")


def parent(name: str) -> Agent:
    """An agent whose steps go to a queue of its own, so that a test says which worker gets them."""
    agent = Agent(name, model=ChaosModel(), queue=name)

    async def follow(ctx: ToolContext, text: str, *, hidden: bool = True) -> str:
        result = await (await ctx.start_thread("helper", text, hidden=hidden)).result()
        await ctx.step("result", trace, f"{name}-result")
        return f"{result.status} {result.text}".strip()

    @agent.tool(max_attempts=3)
    async def delegate(ctx: ToolContext, mark: str) -> str:
        """Work that ends by itself."""
        return await follow(ctx, "tell 4 0")

    @agent.tool(max_attempts=3)
    async def entrust(ctx: ToolContext, mark: str) -> str:
        """Work that goes on until the test says go, in a hidden thread."""
        return await follow(ctx, "tell 20 0 held")

    @agent.tool(max_attempts=3)
    async def entrust_openly(ctx: ToolContext, mark: str) -> str:
        """As `entrust`, in a thread that its owner sees."""
        return await follow(ctx, "tell 20 0 held", hidden=False)

    return agent


registry = Registry(helper, *(parent(name) for name in PARENTS))
