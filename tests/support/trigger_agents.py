"""An agent that is woken every second, for a cluster of real processes."""

from datetime import timedelta

from pai import Agent, Registry, TriggerContext, TriggerInput

agent = Agent("main", model="demo")


@agent.trigger("tick", interval=timedelta(seconds=1), owner="anonymous")
async def tick(ctx: TriggerContext) -> TriggerInput:
    """One thread per slot, so that a slot that fires twice shows."""
    return TriggerInput(text=f"slot {ctx.slot.timestamp():.0f}")


registry = Registry(agent)
