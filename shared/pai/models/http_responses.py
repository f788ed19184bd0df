"""Closing what a call has opened, at once.

A provider's library may leave its HTTP response to a chain of suspended generators, which only the garbage collector
closes; until then the provider goes on writing, and charging.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta

import httpx2
from pydantic_ai.models import create_async_httpx2_client

_opened: ContextVar[list[httpx2.Response] | None] = ContextVar("pai_opened_responses", default=None)


def http_client(*, read_timeout: timedelta) -> httpx2.AsyncClient:
    """A client whose responses `closing_responses` knows."""
    client = create_async_httpx2_client(timeout=httpx2.Timeout(read_timeout.total_seconds(), connect=10))
    client.event_hooks["response"].append(_note)
    return client


@asynccontextmanager
async def closing_responses() -> AsyncIterator[None]:
    """Close every response that this task's requests get while entering what is inside, when it is left."""
    opened: list[httpx2.Response] = []
    _opened.set(opened)
    try:
        yield
    finally:
        _opened.set(None)
        for response in opened:
            with suppress(httpx2.HTTPError, RuntimeError):
                await response.aclose()


async def _note(response: httpx2.Response) -> None:
    opened = _opened.get()
    if opened is not None:
        opened.append(response)
