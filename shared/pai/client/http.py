"""The HTTP transport: the routes of one agent's API, and its watches as server-sent events."""

import json
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote, urljoin

import httpx

from pai.client.files import (
    CreateFileUrlInput,
    FileUploadInput,
    FileUrlResult,
    ReadFileInput,
    StoredFileBody,
    UploadedFile,
)
from pai.client.http_edge import transport_errors
from pai.client.http_requests import QUIET, TIMEOUT, Headers, HttpRequests, new_http_client
from pai.client.transport import ThreadHeadWatchInput, ThreadListOptions, ThreadWatchInput
from pai.protocol.errors import NotFound, TransportError
from pai.protocol.events import ThreadHeadEvent, WatchEvent
from pai.protocol.json import loads
from pai.protocol.requests import (
    ActionRequest,
    CommandRequest,
    MutationResult,
    RegenerateRequest,
    RenameRequest,
    SendRequest,
    StopRunRequest,
    StopThreadRequest,
    ToolDataRequest,
)
from pai.protocol.sse import SseDecoder
from pai.protocol.state import RunState, ThreadListResult, ThreadSummary, TransportState
from pai.protocol.wire import WireModel

_LIST_PARAMETERS = {
    "parentThreadId": "parent_thread_id",
    "category": "category",
    "status": "status",
    "pageToken": "page_token",
    "limit": "limit",
    "agent": "agent",
    "hidden": "hidden",
}


class HttpTransport:
    """Requests that failed to connect are sent again a few times; keys make it safe to repeat mutations."""

    def __init__(
        self, requests: HttpRequests, *, owned: httpx.AsyncClient | None = None, quiet: timedelta = QUIET
    ) -> None:
        self._requests = requests
        self._owned = owned
        self._quiet = quiet

    async def get_manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = await self._requests.json("GET", "")
        return manifest

    async def list_threads(self, options: ThreadListOptions) -> ThreadListResult:
        given = {name: getattr(options, attribute) for name, attribute in _LIST_PARAMETERS.items()}
        params = {name: _parameter(value) for name, value in given.items() if value is not None}
        answer = await self._requests.json("GET", "/threads", params=params)
        with transport_errors():
            return ThreadListResult.read(answer)

    async def rename_thread(self, thread_id: str, request: RenameRequest, *, key: str) -> ThreadSummary:
        answer = await self._requests.json("PATCH", _thread(thread_id), body=request.wire(), key=key)
        with transport_errors():
            return ThreadSummary.read(answer)

    async def delete_thread(self, thread_id: str, *, key: str) -> None:
        await self._requests.json("DELETE", _thread(thread_id), key=key)

    async def get_thread_state(self, thread_id: str) -> TransportState | None:
        try:
            answer = await self._requests.json("GET", _thread(thread_id))
        except NotFound as error:
            if error.what == "thread":
                return None
            raise
        with transport_errors():
            return TransportState.read(answer)

    async def send(self, thread_id: str, request: SendRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "send"), request, key=key)

    async def regenerate(self, thread_id: str, request: RegenerateRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "regenerate"), request, key=key)

    async def stop_thread(self, thread_id: str, request: StopThreadRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "stop"), request, key=key)

    async def stop_run(self, thread_id: str, run_id: str, request: StopRunRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "runs", run_id, "stop"), request, key=key)

    async def respond_to_action(self, thread_id: str, request: ActionRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "actions"), request, key=key)

    async def write_tool_data(self, thread_id: str, request: ToolDataRequest, *, key: str) -> MutationResult:
        return await self._mutate("POST", _thread(thread_id, "tool-data"), request, key=key)

    async def recall_queued_item(self, thread_id: str, queue_item_id: str, *, key: str) -> MutationResult:
        return await self._mutate("DELETE", _thread(thread_id, "queue", queue_item_id), None, key=key)

    async def execute_command(self, thread_id: str, name: str, request: CommandRequest, *, key: str) -> Any:
        answer = await self._requests.json("POST", _thread(thread_id, "commands", name), body=request.wire(), key=key)
        with transport_errors():
            return answer["output"]

    async def get_run(self, thread_id: str, run_id: str) -> RunState | None:
        try:
            answer = await self._requests.json("GET", _thread(thread_id, "runs", run_id))
        except NotFound as error:
            if error.what in ("thread", "run"):
                return None
            raise
        with transport_errors():
            return RunState.read(answer)

    async def upload_file(self, upload: FileUploadInput, *, key: str) -> UploadedFile:
        headers = {"content-type": upload.media_type, "accept": "application/json"}
        if upload.filename is not None:
            headers["x-pai-filename"] = quote(upload.filename, safe="")
        if upload.thread_id is not None:
            headers["x-pai-thread-id"] = upload.thread_id
        if upload.metadata is not None:
            # A header holds ASCII; escaped it is the same JSON.
            headers["x-pai-metadata"] = json.dumps(upload.metadata, separators=(",", ":"))
        if upload.byte_size is not None and not isinstance(upload.body, bytes):
            headers["content-length"] = str(upload.byte_size)
        repeat = isinstance(upload.body, bytes)
        response = await self._requests.send(
            "POST", "/files", content=upload.body, key=key, headers=headers, repeat=repeat
        )
        with transport_errors():
            return UploadedFile.read(loads(response.content))

    async def create_file_url(self, request: CreateFileUrlInput) -> FileUrlResult | None:
        body: dict[str, Any] = {} if request.intent is None else {"intent": request.intent}
        if request.ttl is not None:
            body["ttlSeconds"] = round(request.ttl.total_seconds())
        try:
            answer = await self._requests.json("POST", f"/files/{_quoted(request.file_id)}/url", body=body)
        except NotFound as error:
            if error.what == "file":
                return None
            raise
        with transport_errors():
            result = FileUrlResult.read(answer)
            return result.model_copy(update={"url": urljoin(f"{self._requests.base}/", result.url)})

    async def read_file(self, request: ReadFileInput) -> StoredFileBody:
        headers = {}
        if request.first is not None or request.last is not None:
            last = "" if request.last is None else request.last
            headers["range"] = f"bytes={request.first or 0}-{last}"
        response = await self._requests.open(f"/files/{_quoted(request.file_id)}", headers=headers)
        length = response.headers.get("content-length", "")
        return StoredFileBody(
            media_type=response.headers.get("content-type", "application/octet-stream"),
            byte_size=int(length) if length.isdecimal() else None,
            pieces=_pieces(response),
            filename=_filename(response.headers.get("content-disposition", "")),
            close=response.aclose,
        )

    async def watch_thread(self, watch: ThreadWatchInput) -> AsyncGenerator[WatchEvent, None]:
        headers = {"accept": "text/event-stream"}
        if watch.after is not None:
            headers["last-event-id"] = str(watch.after)
        path = _thread(watch.thread_id, "watch")
        async for event in self._events(path, params={"snapshot": "1"}, headers=headers):
            if event.get("type") == "ready" and watch.on_connection_established is not None:
                watch.on_connection_established()
            yield event  # type: ignore[misc]

    async def watch_thread_heads(self, watch: ThreadHeadWatchInput) -> AsyncGenerator[ThreadHeadEvent, None]:
        async for event in self._events("/heads/watch", params={}, headers={"accept": "text/event-stream"}):
            if event.get("type") == "ready" and watch.on_connection_established is not None:
                watch.on_connection_established()
            yield event  # type: ignore[misc]

    async def close(self) -> None:
        if self._owned is not None:
            await self._owned.aclose()

    async def _mutate(self, method: str, path: str, request: WireModel | None, *, key: str) -> MutationResult:
        body = None if request is None else request.wire()
        answer = await self._requests.json(method, path, body=body, key=key)
        with transport_errors():
            return MutationResult.read(answer)

    async def _events(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a stream until it ends. Raises PaiError when it cannot be opened, breaks, or goes quiet."""
        decoder = SseDecoder()
        async with self._requests.stream(path, params=params, headers=headers, quiet=self._quiet) as response:
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise TransportError(f"The server answered a watch with {kind or 'no content type'}.")
            pieces = response.aiter_bytes()
            while True:
                with transport_errors():
                    piece = await anext(pieces, None)
                    events = [] if piece is None else [loads(event.data) for event in decoder.feed(piece)]
                if piece is None:
                    return
                for event in events:
                    yield event


def _filename(disposition: str) -> str | None:
    """The name of RFC 6266 in the form that this server gives it."""
    _, starred, whole = disposition.partition("filename*=UTF-8''")
    _, quoted, plain = disposition.partition('filename="')
    return unquote(whole) if starred else plain.partition('"')[0] if quoted else None


async def _pieces(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    with transport_errors():
        async for piece in response.aiter_bytes():
            yield piece


def _thread(thread_id: str, *path: str) -> str:
    return "/".join(["/threads", _quoted(thread_id), *map(_quoted, path)])


def _quoted(segment: str) -> str:
    """`.` and `..` would be resolved away; no id is one, and the server says so."""
    return quote(segment, safe="~:").replace(".", "%2E") if segment in (".", "..") else quote(segment, safe="~:")


def _parameter(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def create_http_transport(
    url: str,
    *,
    headers: Headers | None = None,
    timeout: timedelta = TIMEOUT,
    quiet: timedelta = QUIET,
    http_client: httpx.AsyncClient | None = None,
) -> HttpTransport:
    """`url` is the base of one agent: `http://localhost:8000/api/pai/main`. `http_client` stays the caller's to close.

    `headers`: for every request, or a function that gives them, for credentials that change. `quiet`: a watch without
    any byte for that long is made again.
    """
    http = http_client or new_http_client()
    requests = HttpRequests(http, url, headers=headers, timeout=timeout)
    return HttpTransport(requests, owned=http if http_client is None else None, quiet=quiet)
