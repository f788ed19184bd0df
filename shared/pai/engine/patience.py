"""Waiting out an outage of the database, for whoever holds a step.

Leases are renewed as soon as the database is back, and no process expires another's before its own SQL has worked for a
whole lease. So a step that waits is still its worker's, and what a tool did is not lost because a server was restarted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pai.protocol.errors import Unavailable

LONGEST = timedelta(minutes=5)
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """`work`, done again while the database is away, for up to five minutes.

    It may have been done although it failed, so it must say by itself when there is nothing left to do, as everything
    under a fence does. Raises what `work` raises, Unavailable in the end.
    """
    clock = asyncio.get_running_loop().time
    ends = clock() + LONGEST.total_seconds()
    pause = FIRST_PAUSE
    while True:
        try:
            return await work()
        except Unavailable as error:
            if clock() >= ends:
                raise
            logger.warning("The database is away; a step waits for it: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
