"""The sweep of triggers: each fire is a task of its own, so a slow one keeps neither steps nor other fires waiting."""

import asyncio
import logging
import random

from pai.engine.fires import drop_old_fires
from pai.engine.runtime import Runtime
from pai.engine.triggers import due_fires, execute_fire
from pai.protocol.errors import Unavailable
from pai_workers.metrics import Metrics

logger = logging.getLogger(__name__)

Firing = dict[asyncio.Task[None], tuple[str, str]]
"""The fires under way in this process, with the names of agent and trigger."""


async def sweep_triggers_forever(runtime: Runtime, metrics: Metrics) -> None:
    """One round per interval at the latest, jittered. Fires under way are abandoned when this is cancelled."""
    interval = runtime.settings.sweep_interval.total_seconds()
    firing: Firing = {}
    try:
        while True:
            await asyncio.sleep(interval * random.uniform(0.6, 1.0))
            try:
                await sweep_triggers(runtime, firing, metrics)
            except Unavailable as error:
                logger.warning("The sweep of triggers could not read the database: %s", error)
            except Exception:
                logger.exception("The sweep of triggers failed and goes on.")
    finally:
        for task in firing:
            task.cancel()
        await asyncio.gather(*firing, return_exceptions=True)


async def sweep_triggers(runtime: Runtime, firing: Firing, metrics: Metrics) -> None:
    """One round: begins what is due, in tasks that are in `firing` until they end. Raises Unavailable."""
    await drop_old_fires(runtime)
    for due in await due_fires(runtime, under_way=set(firing.values())):
        task = asyncio.create_task(_fire(runtime, due.fire_id, metrics), name=f"pai-trigger {due.fire_id}")
        firing[task] = due.trigger
        task.add_done_callback(firing.pop)


async def _fire(runtime: Runtime, fire_id: str, metrics: Metrics) -> None:
    try:
        ended = await execute_fire(runtime, fire_id)
        if ended is not None:
            metrics.fires.labels(ended.value).inc()
    except Unavailable as error:
        logger.warning("A trigger is fired later: %s", error)
    except Exception:
        logger.exception("A trigger could not be fired; it is tried again.")
