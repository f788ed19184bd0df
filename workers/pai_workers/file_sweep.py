"""The sweep of files: a round of its own, because a store that is slow must not keep the sweep from steps."""

import asyncio
import logging
import random

from pai.engine.file_cleanup import BATCH, clean_files
from pai.engine.runtime import Runtime
from pai.protocol.errors import Unavailable

logger = logging.getLogger(__name__)


async def sweep_files_forever(runtime: Runtime) -> None:
    """One round per interval, jittered, and the next one at once while there is more to do."""
    interval = runtime.settings.sweep_interval.total_seconds()
    seen = 0
    while True:
        await asyncio.sleep(0 if seen == BATCH else interval * random.uniform(0.6, 1.0))
        try:
            seen = await clean_files(runtime)
        except Unavailable as error:
            seen = 0
            logger.warning("The sweep of files could not read the database: %s", error)
        except Exception:
            seen = 0
            logger.exception("The sweep of files failed and goes on.")
