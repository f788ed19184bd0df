"""Ending background tasks for certain."""

import asyncio
from typing import Any

_AGAIN_AFTER_SECONDS = 0.05


async def end(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancels tasks until they are done. What they raised is ignored.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which redis-py uses, swallows a cancellation that arrives
    together with the result.
    """
    pending = {task for task in tasks if task is not None}
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_AGAIN_AFTER_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()
