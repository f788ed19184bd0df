"""The trusted surface over HTTP."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx

from pai.client.http import HttpTransport
from pai.client.http_edge import transport_errors
from pai.client.http_requests import QUIET, TIMEOUT, Headers, HttpRequests, new_http_client
from pai.client.runtime_transport import AllThreadsOptions
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.state import ThreadListResult
from pai.protocol.trusted import (
    AppendMessageRequest,
    LifecycleMessage,
    LifecycleMessages,
    LookUpMessagesRequest,
    MetadataRecord,
    MetadataRequest,
    VisibilityRequest,
)

OWNER_HEADER = "x-pai-owner"
_LIST_PARAMETERS = {
    "agent": "agent",
    "hidden": "hidden",
    "parentThreadId": "parent_thread_id",
    "category": "category",
    "status": "status",
    "pageToken": "page_token",
    "limit": "limit",
}


class RuntimeHttpTransport(HttpTransport):
    """`server` sends to the routes of all agents, and names an owner only where the request does."""

    def __init__(
        self, requests: HttpRequests, server: HttpRequests, *, owned: httpx.AsyncClient | None, quiet: timedelta
    ) -> None:
        super().__init__(requests, owned=owned, quiet=quiet)
        self._server = server

    async def list_all_threads(self, options: AllThreadsOptions) -> ThreadListResult:
        given = {name: getattr(options, attribute) for name, attribute in _LIST_PARAMETERS.items()}
        params = {
            name: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in given.items()
            if value is not None
        }
        headers = {"accept": "application/json"}
        if options.owner is not None:
            headers[OWNER_HEADER] = options.owner
        response = await self._server.send("GET", "/threads", params=params, headers=headers)
        with transport_errors():
            return ThreadListResult.read(response.json())

    async def append_message(self, thread_id: str, request: AppendMessageRequest, *, key: str) -> LifecycleMessage:
        answer = await self._requests.json("POST", _thread(thread_id, "messages"), body=request.wire(), key=key)
        with transport_errors():
            return LifecycleMessage.read(answer)

    async def look_up_messages(self, thread_id: str, request: LookUpMessagesRequest) -> list[LifecycleMessage]:
        answer = await self._requests.json("POST", _thread(thread_id, "messages", "lookup"), body=request.wire())
        with transport_errors():
            return LifecycleMessages.read(answer).messages

    async def set_visibility(self, thread_id: str, request: VisibilityRequest, *, key: str) -> MutationResult:
        return await self._mutate("PATCH", _thread(thread_id, "messages", "visibility"), request, key=key)

    async def read_metadata(self, thread_id: str, *, run_id: str | None) -> MetadataRecord:
        answer = await self._requests.json("GET", _metadata(thread_id, run_id))
        with transport_errors():
            return MetadataRecord.read(answer)

    async def change_metadata(
        self, thread_id: str, request: MetadataRequest, *, run_id: str | None, key: str
    ) -> MetadataRecord:
        answer = await self._requests.json("PATCH", _metadata(thread_id, run_id), body=request.wire(), key=key)
        with transport_errors():
            return MetadataRecord.read(answer)

    async def fire_trigger(self, name: str, request: TriggerRequest, *, key: str) -> MutationResult | None:
        path = f"/triggers/{quote(name, safe='')}"
        answer = await self._requests.json("POST", path, body=request.wire(), key=key)
        with transport_errors():
            return None if answer is None else MutationResult.read(answer)


def _thread(thread_id: str, *path: str) -> str:
    return "/".join(["/threads", quote(thread_id, safe="~:"), *path])


def _metadata(thread_id: str, run_id: str | None) -> str:
    if run_id is None:
        return _thread(thread_id, "metadata")
    return _thread(thread_id, "runs", quote(run_id, safe="~:"), "metadata")


def create_runtime_http_transport(
    url: str,
    *,
    owner: str | None = None,
    headers: Headers | None = None,
    timeout: timedelta = TIMEOUT,
    quiet: timedelta = QUIET,
    http_client: httpx.AsyncClient | None = None,
) -> RuntimeHttpTransport:
    """`url` is the base of one agent, `owner` says whose threads: `tenant/subject`, both percent-encoded, or a subject
    of the default tenant. The rest is as for `create_http_transport`; the credentials must be those of a trusted
    caller."""
    http = http_client or new_http_client()
    base = url.rstrip("/")
    own = headers if owner is None else _with_owner(headers, owner)
    requests = HttpRequests(http, base, headers=own, timeout=timeout)
    server = HttpRequests(http, base.rpartition("/")[0], headers=headers, timeout=timeout)
    return RuntimeHttpTransport(requests, server, owned=http if http_client is None else None, quiet=quiet)


def _with_owner(headers: Headers | None, owner: str) -> Callable[[], Awaitable[Mapping[str, str]]]:
    async def both() -> Mapping[str, str]:
        given: Any = headers() if callable(headers) else headers
        if inspect.isawaitable(given):
            given = await given
        return {**(given or {}), OWNER_HEADER: owner}

    return both
