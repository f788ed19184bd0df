"""The last net: what no handler knows is a bug, and it answers a problem like everything else."""

import logging

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_api.problems import Internal, problem

logger = logging.getLogger(__name__)


class Faults:
    """Logs an unexpected exception and answers `internal`. Once an answer has begun, the connection is cut instead."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception:
            if begun:
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await problem(Internal())(scope, receive, send)
