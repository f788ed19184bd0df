"""The bytes of a file as an answer that no browser can be tricked with.

What a browser would run (HTML, SVG, XML, scripts) is only ever downloaded; what is shown is shown as the type that it
was uploaded as, in a sandbox that can do nothing.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pai.engine import api
from pai.engine.runtime import Runtime
from pai.protocol.errors import PaiError
from pai.protocol.files import FileIntent, essence_of
from pai.store.tables import File
from pai_api.byte_ranges import is_known, requested_span

_SHOWN = frozenset(
    {
        "application/json",
        "application/pdf",
        "image/avif",
        "image/bmp",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/markdown",
        "text/plain",
    }
)
_SHOWN_KINDS = ("audio/", "video/")
_SANDBOX = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"

logger = logging.getLogger(__name__)


class FileBytes(Response):
    """Sends the pieces as they come, and stops reading when the other side has left."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], *, status: int, headers: dict[str, str]) -> None:
        super().__init__(status_code=status)
        self._pieces = pieces
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async with aclosing(self._pieces), anyio.create_task_group() as group:
            group.start_soon(until_left)
            await self._send_all(scope, send)
            group.cancel_scope.cancel()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except PaiError as error:
            # Without its end the server cuts the connection, and the other side knows that bytes are missing.
            logger.warning("A download of %s was cut: %s", scope["path"], error)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def file_response(
    request: Request, runtime: Runtime, file: File, *, intent: FileIntent, max_age: int = 0
) -> Response:
    """The file, or the part of it that the request asks for. Raises RangeNotSatisfiable, NotFound, Unavailable."""
    etag = f'"{file.sha256}"'
    headers = _headers(file, intent=intent, etag=etag, max_age=max_age)
    if is_known(request.headers, etag=etag):
        return Response(status_code=304, headers=headers)
    span = requested_span(request.headers, size=file.byte_size, etag=etag)
    headers["content-length"] = str(span.count)
    if span.partial:
        headers["content-range"] = f"bytes {span.first}-{span.first + span.count - 1}/{file.byte_size}"
    pieces = await api.open_pieces(runtime, file, first=span.first, count=span.count)
    return FileBytes(pieces, status=206 if span.partial else 200, headers=headers)


def _headers(file: File, *, intent: FileIntent, etag: str, max_age: int) -> dict[str, Any]:
    essence = essence_of(file.media_type)
    shown = intent == "view" and (essence in _SHOWN or essence.startswith(_SHOWN_KINDS))
    headers = {
        "content-type": file.media_type,
        "content-disposition": content_disposition("inline" if shown else "attachment", file.filename),
        "accept-ranges": "bytes",
        "etag": etag,
        "cache-control": f"private, max-age={max_age}, immutable" if max_age > 0 else "private, no-cache",
        "x-content-type-options": "nosniff",
        "content-security-policy": _SANDBOX,
        "referrer-policy": "no-referrer",
    }
    if shown and essence == "application/pdf":
        # Browsers show PDF with a viewer of their own, which works in no sandbox and is one itself.
        del headers["content-security-policy"]
    return headers


def content_disposition(kind: str, filename: str | None) -> str:
    """RFC 6266: a plain name for everybody, and the whole one for who reads UTF-8."""
    if filename is None:
        return kind
    plain = "".join(letter if " " <= letter <= "~" and letter not in '"\\%' else "_" for letter in filename)
    whole = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}"
    return f'{kind}; filename="{plain}"{whole}'
