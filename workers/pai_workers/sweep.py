"""The sweep, in every worker: what was lost, forgotten or is due is found here. There is no scheduler process."""

import asyncio
import logging
import random
from collections.abc import Awaitable
from typing import TypeVar

from pai.engine.claim import expired, overdue, take_forgotten
from pai.engine.delivery import deliver_due
from pai.engine.expiry import expire, time_out
from pai.engine.runtime import Runtime
from pai.protocol.errors import Unavailable
from pai_workers.leases import Leases
from pai_workers.metrics import Metrics

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def sweep_forever(runtime: Runtime, leases: Leases, metrics: Metrics) -> None:
    """One round per interval at the latest, jittered, so that many workers do not come at once."""
    interval = runtime.settings.sweep_interval.total_seconds()
    while True:
        await asyncio.sleep(interval * random.uniform(0.6, 1.0))
        try:
            await sweep(runtime, metrics, expire_leases=leases.healthy)
        except Unavailable as error:
            logger.warning("The sweep could not read the database: %s", error)
        except Exception:
            logger.exception("The sweep failed and goes on.")


async def _guarded(work: Awaitable[T], *, what: str) -> T | None:
    """One thread that cannot be helped must not keep the sweep from the others."""
    try:
        return await work
    except Unavailable:
        raise
    except Exception:
        logger.exception("The sweep failed for %s and goes on.", what)
        return None


async def sweep(runtime: Runtime, metrics: Metrics, *, expire_leases: bool) -> None:
    """One round: expired leases go back, unanswered calls end, forgotten steps are dispatched."""
    if expire_leases:
        for version in {version for _, version in await expired(runtime)}:
            metrics.takeovers.inc(await _guarded(expire(runtime, version=version), what=version) or 0)
    for step_id, version in await overdue(runtime):
        await _guarded(time_out(runtime, version=version, step_id=step_id), what=version)
    await _guarded(deliver_due(runtime), what="flags")
    forgotten = await take_forgotten(runtime)
    if forgotten and runtime.dispatcher is not None:
        metrics.redispatches.inc(len(forgotten))
        runtime.dispatcher.dispatch(forgotten)
