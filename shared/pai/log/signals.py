"""Signals: a broadcast to all worker processes. They hasten what a worker would find out at its next renewal anyway, so
a signal that is lost does no harm."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from pai.log.errors import mapped_errors
from pai.log.keys import SIGNALS_CHANNEL
from pai.log.listener import Listener
from pai.protocol.json import dumps, loads

_logger = logging.getLogger(__name__)

OnStop = Callable[[str, int], None]
"""Called with a step id and the attempt that took it over: older attempts are to be abandoned."""


class Signals:
    """Publishes and hears signals."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    async def publish_stop(self, steps: Iterable[tuple[str, int]]) -> None:
        """`steps`: (step id, attempt as of the take-over). Raises LogUnavailable."""
        stop = [[step_id, attempt] for step_id, attempt in steps]
        if stop:
            with mapped_errors():
                await self._redis.publish(SIGNALS_CHANNEL, dumps({"stop": stop}))

    @asynccontextmanager
    async def listen(self, on_stop: OnStop) -> AsyncIterator[None]:
        """Calls `on_stop` in the event loop for every step of every signal, on a connection that heals itself."""

        def on_message(channel: bytes, data: bytes) -> None:
            for step_id, attempt in _stops(data):
                on_stop(step_id, attempt)

        listener = Listener(self._redis, on_message=on_message, on_subscribed=lambda channel, other_server: None)
        async with listener:
            listener.subscribe(SIGNALS_CHANNEL)
            yield


def _stops(data: bytes) -> list[tuple[str, int]]:
    """What a signal says; nothing when it is of a kind that this version does not know."""
    try:
        signal: Any = loads(data)
        return [(str(step_id), int(attempt)) for step_id, attempt in signal.get("stop", [])]
    except (ValueError, TypeError, AttributeError):
        _logger.warning("A signal could not be read: %.200r", data)
        return []
