"""A response of server-sent events: bytes go out as they come, and everything ends with its reader."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pai.protocol.errors import PaiError
from pai_api.identity.gate import Access
from pai_api.state import ApiState

MEDIA_TYPE = "text/event-stream"
HEADERS = {"content-type": MEDIA_TYPE, "cache-control": "no-store", "x-accel-buffering": "no"}
FAREWELL_SECONDS = 1.0

Emit = Callable[[bytes], Awaitable[None]]
"""Sends bytes; returns when the connection takes more."""

logger = logging.getLogger(__name__)


class EventStream(Response):
    """Runs `source(emit)` until it returns, the reader leaves or loses access, or the server drains.

    A source that raises a PaiError ends the stream, and the reader comes again with its last position.
    """

    def __init__(
        self, source: Callable[[Emit], Awaitable[None]], *, state: ApiState, kind: str, access: Access
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._source = source
        self._drain = state.drain
        self._access = access
        self._recheck = state.settings.recheck_interval
        self._watchers = state.metrics.watchers.labels(kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def emit(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async def until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async def until_refused() -> None:
            # The stream just ends: the reader comes again, and its new request is told why it may not.
            await self._access.ended(every=self._recheck)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(until_left)
            group.start_soon(until_refused)
            with self._watchers.track_inprogress(), self._drain.on_start(group.cancel_scope.cancel):
                try:
                    await self._source(emit)
                except PaiError as error:
                    logger.warning("A watch of %s ended: %s", scope["path"], error)
            group.cancel_scope.cancel()
        # A reader that has stopped reading must not hold the server that is shutting down.
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
