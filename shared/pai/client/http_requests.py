"""Sends requests to one server: credentials, idempotency keys, and patience with connections that break."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx

from pai.client.backoff import Backoff, BackoffSettings
from pai.client.http_edge import check, is_connection_error, transport_errors
from pai.protocol.errors import PaiError, Unavailable
from pai.protocol.json import dumps, loads

Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of every request, or a function (sync or async) that gives them for each: where credentials go."""

TIMEOUT = timedelta(seconds=30)
TRIES = 4
QUIET = timedelta(seconds=45)
"""A server sends a keep-alive every 15 s: a stream without any byte for three times as long is dead."""


IDLE = timedelta(seconds=2)
"""A server closes a connection that is idle for 5 s: what is sent just then is lost, and an upload is not repeated."""


def new_http_client() -> httpx.AsyncClient:
    """Without a limit of connections: each watch holds one for as long as it lasts."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE.total_seconds())
    return httpx.AsyncClient(limits=limits)


class HttpRequests:
    """`base` is the URL that paths are appended to; an empty path is that URL itself."""

    def __init__(self, http: httpx.AsyncClient, base: str, *, headers: Headers | None, timeout: timedelta) -> None:
        self.base = base.rstrip("/")
        self._http = http
        self._headers = headers
        self._timeout = timeout.total_seconds()

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Any:
        """The JSON of the answer; None when it has no body. Every request may be repeated: reads change nothing, and
        mutations carry their `key`. Raises PaiError."""
        headers = {"accept": "application/json"}
        content = None
        if body is not None:
            with transport_errors():
                content = dumps(body)
            headers["content-type"] = "application/json"
        response = await self.send(method, path, content=content, params=params, key=key, headers=headers)
        with transport_errors():
            return loads(response.content) if response.content else None

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: Any = None,
        params: Mapping[str, str] | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
    ) -> httpx.Response:
        """`repeat` false: `content` can be read only once. Raises PaiError."""
        backoff = Backoff(BackoffSettings())
        while True:
            try:
                with transport_errors():
                    response = await self._http.request(
                        method,
                        self.base + path,
                        content=content,
                        params=params,
                        headers=await self._all_headers(headers, key),
                        timeout=self._timeout,
                    )
                return await check(response)
            except PaiError as error:
                again = is_connection_error(error) or isinstance(error, Unavailable)
                if not (again and repeat) or backoff.failures + 1 >= TRIES:
                    raise
                await asyncio.sleep(backoff.next(at_least=min(getattr(error, "retry_after", 0.0), 5.0)))

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        quiet: timedelta = QUIET,
    ) -> AsyncGenerator[httpx.Response, None]:
        """A response whose body is read as it comes; it fails when no byte came for `quiet`. Raises PaiError."""
        response = await self.open(path, params=params, headers=headers, quiet=quiet)
        try:
            yield response
        finally:
            await response.aclose()

    async def open(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        quiet: timedelta = QUIET,
    ) -> httpx.Response:
        """As `stream`, for a caller who closes it."""
        with transport_errors():
            timeout = httpx.Timeout(self._timeout, read=quiet.total_seconds())
            request = self._http.build_request(
                "GET", self.base + path, params=params, headers=await self._all_headers(headers, None), timeout=timeout
            )
            response = await self._http.send(request, stream=True)
            try:
                return await check(response)
            except BaseException:
                await response.aclose()
                raise

    async def _all_headers(self, own: Mapping[str, str] | None, key: str | None) -> dict[str, str]:
        given = self._headers
        if callable(given):
            found = given()
            given = await found if inspect.isawaitable(found) else found
        headers = {**(given or {}), **(own or {})}
        if key is not None:
            headers["idempotency-key"] = key
        return headers
