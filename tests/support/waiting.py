"""Waiting for a condition instead of sleeping, so that a test is as fast as the thing it waits for."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

PATIENCE = timedelta(seconds=30)
T = TypeVar("T")


async def wait_until(
    predicate: Callable[[], T | Awaitable[T]],
    *,
    timeout: timedelta = PATIENCE,
    every: timedelta = timedelta(milliseconds=10),
    saw: Callable[[], Any] | None = None,
) -> T:
    """The first true value of `predicate`, plain or async. Raises AssertionError that tells what it saw last.

    `saw` adds to the message what else is worth knowing when it never comes true.
    """
    ends = time.monotonic() + timeout.total_seconds()
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(_never(predicate, value, timeout=timeout, saw=saw))
        await asyncio.sleep(every.total_seconds())


def wait_until_sync(
    predicate: Callable[[], T],
    *,
    timeout: timedelta = PATIENCE,
    every: timedelta = timedelta(milliseconds=10),
    saw: Callable[[], Any] | None = None,
) -> T:
    """`wait_until` for tests without an event loop."""
    ends = time.monotonic() + timeout.total_seconds()
    while not (value := predicate()):
        if time.monotonic() > ends:
            raise AssertionError(_never(predicate, value, timeout=timeout, saw=saw))
        time.sleep(every.total_seconds())
    return value


def _never(predicate: object, value: object, *, timeout: timedelta, saw: Callable[[], Any] | None) -> str:
    name = getattr(predicate, "__qualname__", repr(predicate))
    told = "" if saw is None else f"; saw {saw()!r}"
    return f"{name} was still {value!r} after {timeout.total_seconds():g} s{told}"
