"""The thread list while it changes: a stream of changes only, so what was missed is found by listing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from pai.client.backoff import Backoff, BackoffSettings
from pai.client.transport import ThreadHeadWatchInput, ThreadListOptions
from pai.protocol.errors import PaiError, RateLimited
from pai.protocol.events import ThreadHeadEvent
from pai.protocol.state import ThreadListResult, ThreadSummary

_PAGE = 100
_MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class ThreadHeadChanged:
    """A thread is new, or has changed."""

    summary: ThreadSummary


@dataclass(frozen=True, slots=True)
class ThreadHeadRemoved:
    thread_id: str
    version: str


ThreadHeadWatchEvent = ThreadHeadChanged | ThreadHeadRemoved


class HeadsTransport(Protocol):
    async def list_threads(self, options: ThreadListOptions) -> ThreadListResult: ...

    def watch_thread_heads(self, watch: ThreadHeadWatchInput) -> AsyncGenerator[ThreadHeadEvent, None]: ...


class _Known:
    """The highest revision per incarnation, and what was removed: neither order nor repetition of news matters."""

    def __init__(self) -> None:
        self._heads: dict[str, tuple[str, int]] = {}
        self._removed: set[str] = set()

    def changed(self, summary: ThreadSummary) -> ThreadHeadChanged | None:
        known = self._heads.get(summary.version)
        if summary.version in self._removed or (known is not None and known[1] >= summary.revision):
            return None
        self._heads[summary.version] = (summary.thread_id, summary.revision)
        return ThreadHeadChanged(summary)

    def removed(self, thread_id: str, version: str) -> ThreadHeadRemoved | None:
        if version in self._removed:
            return None
        self._removed.add(version)
        self._heads.pop(version, None)
        return ThreadHeadRemoved(thread_id, version)

    def all(self) -> dict[str, str]:
        """Version -> thread id."""
        return {version: thread_id for version, (thread_id, _) in self._heads.items()}


class HeadsWatch:
    """`async for event in client.threads.watch_heads()`; it connects again until it is closed.

    After each connect the list is read once: threads that changed or went meanwhile come as events like all others. The
    first time that is every thread, newest first. It holds its connection until it is closed or forgotten; `async with`
    closes it for certain.
    """

    def __init__(self, transport: Any, reconnect: BackoffSettings, established: Callable[[], None] | None) -> None:
        self._events = _Connection(transport, reconnect, established).watch()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ThreadHeadWatchEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Connection:
    """What the events are made of. It knows nothing of the watch, which so can be forgotten, and is closed then."""

    def __init__(self, transport: Any, reconnect: BackoffSettings, established: Callable[[], None] | None) -> None:
        self._transport: HeadsTransport = transport
        self._reconnect = reconnect
        self._established = established
        self._known = _Known()

    async def watch(self) -> AsyncGenerator[ThreadHeadWatchEvent, None]:
        backoff = Backoff(self._reconnect)
        while True:
            try:
                async with aclosing(self._follow(backoff)) as events:
                    async for event in events:
                        yield event
                wait = backoff.next()
            except PaiError as error:
                if error.status < 500 and not isinstance(error, RateLimited):
                    raise
                wait = backoff.next(at_least=getattr(error, "retry_after", None) or 0.0)
            await asyncio.sleep(wait)

    async def _follow(self, backoff: Backoff) -> AsyncGenerator[ThreadHeadWatchEvent, None]:
        watch = ThreadHeadWatchInput(on_connection_established=self._established)
        async with aclosing(self._transport.watch_thread_heads(watch)) as events:
            async for event in events:
                if event["type"] == "ready":
                    for missed in await self._missed():
                        yield missed
                    backoff.reset()
                    continue
                news = self._read(event)
                if news is not None:
                    yield news

    def _read(self, event: ThreadHeadEvent) -> ThreadHeadWatchEvent | None:
        if event["type"] == "head":
            return self._known.changed(ThreadSummary.read(event["summary"]))
        if event["type"] == "removed":
            return self._known.removed(event["threadId"], event["version"])
        return None

    async def _missed(self) -> list[ThreadHeadWatchEvent]:
        """What the list says that was not known. A removal is only certain when the whole list was read."""
        gone, news = self._known.all(), list[ThreadHeadWatchEvent]()
        token: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._transport.list_threads(ThreadListOptions(page_token=token, limit=_PAGE))
            for summary in page.items:
                gone.pop(summary.version, None)
                changed = self._known.changed(summary)
                if changed is not None:
                    news.append(changed)
            token = page.next_page_token
            if token is None:
                removed = (self._known.removed(thread_id, version) for version, thread_id in gone.items())
                return [*news, *(event for event in removed if event is not None)]
        return news
