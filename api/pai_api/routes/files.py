"""Files: upload, read, and URLs that open them for a while."""

from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from pai.engine import api
from pai.protocol.errors import NotFound, ValidationFailed
from pai.protocol.files import (
    CreateFileUrlInput,
    FileIntent,
    FileUploadInput,
    FileUrlRequest,
    FileUrlResult,
    UploadedFile,
)
from pai.protocol.ids import ID_PATTERN
from pai.protocol.times import now_ms
from pai_api.call import AgentPath, CallDep, document_agent, document_key, record
from pai_api.file_response import file_response
from pai_api.json_body import JsonBody, parse_json
from pai_api.openapi import operation, ref
from pai_api.origin import check_origin
from pai_api.state import ApiState

router = APIRouter(prefix="/api/pai/{agent}")

BYTES = "application/octet-stream"
_ANSWERS = {
    200: ("The file.", "FileBytes"),
    206: ("The part of it that `Range` asks for.", "FileBytes"),
}
_UrlBody = Annotated[FileUrlRequest, Depends(JsonBody(FileUrlRequest, optional=True))]


async def document_file(
    file_id: Annotated[str, Path(description="The file's id.", json_schema_extra={"pattern": ID_PATTERN})],
) -> None:
    """Parameters that `Call` reads, for the document."""


async def document_range(
    span: Annotated[str | None, Header(alias="Range", description="`bytes=0-99`: one part of the file.")] = None,
) -> None:
    """Parameters that the answer reads, for the document."""


async def document_upload(
    filename: Annotated[str | None, Header(alias="x-pai-filename", description="Its name, percent-encoded.")] = None,
    thread_id: Annotated[
        str | None, Header(alias="x-pai-thread-id", description="The thread it is for, which need not exist yet.")
    ] = None,
    metadata: Annotated[str | None, Header(alias="x-pai-metadata", description="A JSON object.")] = None,
) -> None:
    """Parameters that the upload reads, for the document."""


def _upload_operation() -> dict[str, Any]:
    described = operation(
        "uploadFile",
        summary="Upload a file",
        tag="files",
        answers={
            201: ("The file, ready to be sent as an attachment.", UploadedFile),
            200: ("The recorded answer of the same request.", UploadedFile),
        },
        problems=("idempotency_conflict", "too_large", "rate_limited"),
    )
    described["openapi_extra"]["requestBody"] = {"required": True, "content": {"*/*": {"schema": ref("FileBytes")}}}
    return described


@router.post(
    "/files",
    dependencies=[Depends(document_agent), Depends(document_key), Depends(document_upload)],
    **_upload_operation(),
)
async def upload_file(call: CallDep) -> Response:
    """The body is the file, `Content-Type` its media type. It is kept while it comes, and is there when all of it is.

    What no message uses goes after a day.
    """
    check_origin(call.request)
    headers = call.request.headers
    upload = FileUploadInput(
        body=call.request.stream(),
        media_type=headers.get("content-type", ""),
        filename=_filename(headers.get("x-pai-filename")),
        thread_id=headers.get("x-pai-thread-id"),
        byte_size=_length(headers.get("content-length")),
        metadata=_metadata(headers.get("x-pai-metadata"), max_depth=call.runtime.settings.max_json_depth),
    )
    reply = await api.upload_file(call.runtime, call.caller, upload, key=call.key)
    return record(reply.result, status=200 if reply.replayed else 201)


@router.get(
    "/files/{file_id}",
    dependencies=[Depends(document_agent), Depends(document_file), Depends(document_range)],
    **operation(
        "readFile",
        summary="Read a file",
        tag="files",
        answers=_ANSWERS,
        media_type="*/*",
        problems=("range_not_satisfiable",),
    ),
)
async def read_file(call: CallDep) -> Response:
    """The bytes as they were uploaded. `ETag`, `If-None-Match`, `Range` and `If-Range` work as everywhere."""
    file = await api.get_file(call.runtime, call.caller, call.existing("file"))
    return await file_response(call.request, call.runtime, file, intent="view")


@router.post(
    "/files/{file_id}/url",
    dependencies=[Depends(document_agent), Depends(document_file)],
    **operation(
        "createFileUrl",
        summary="Make a URL that opens a file",
        tag="files",
        body=FileUrlRequest,
        body_required=False,
        answers={200: ("The URL, and until when it is good.", FileUrlResult)},
        example={"intent": "download", "ttlSeconds": 600},
    ),
)
async def create_file_url(call: CallDep, body: _UrlBody) -> Response:
    """Whoever has the URL needs nothing else: an `<img>` or a link works with it."""
    longest = call.runtime.settings.max_file_url_ttl.total_seconds()
    if body.ttl_seconds is not None and body.ttl_seconds > longest:
        raise ValidationFailed.at("ttlSeconds", f"must be from 1 to {longest:g}")
    ttl = None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds)
    asked = CreateFileUrlInput(file_id=call.existing("file"), intent=body.intent, ttl=ttl)
    result = await api.create_file_url(call.runtime, call.caller, asked)
    if result is None:
        raise NotFound("file")
    if call.runtime.settings.public_url is None:
        result = result.model_copy(update={"url": f"{str(call.request.base_url).rstrip('/')}{result.url}"})
    return record(result)


@router.get(
    "/files/{file_id}/content",
    dependencies=[Depends(document_file), Depends(document_range)],
    **operation(
        "openFileUrl",
        summary="Open a file by its URL",
        tag="files",
        answers=_ANSWERS,
        media_type="*/*",
        anywhere=False,
        problems=("validation_failed", "forbidden", "not_found", "range_not_satisfiable", "unavailable", "internal"),
    ),
)
async def open_file_url(
    request: Request,
    agent: AgentPath,
    intent: Annotated[FileIntent, Query(description="`view` shows what browsers show safely.")],
    expires: Annotated[int, Query(description="Seconds since 1970.", ge=0, lt=2**40)],
    signature: Annotated[str, Query(description="Proves that the server made this URL.", max_length=100)],
) -> Response:
    """Where signed URLs lead. It asks for no credentials; an expired URL answers 403, any other wrong one 404."""
    runtime = ApiState.of(request).runtime
    file = await api.granted_file(
        runtime,
        agent=agent,
        file_id=request.path_params["file_id"],
        intent=intent,
        expires_at=expires,
        signature=signature,
    )
    return await file_response(request, runtime, file, intent=intent, max_age=expires - now_ms() // 1000)


def _filename(header: str | None) -> str | None:
    if header is None:
        return None
    try:
        return unquote_to_bytes(header).decode()
    except UnicodeError:
        raise ValidationFailed.at("x-pai-filename", "must be percent-encoded UTF-8") from None


def _length(header: str | None) -> int | None:
    """The server has checked that it is a number, and holds the body to it."""
    return int(header[:20]) if header is not None and header.isascii() and header.isdigit() else None


def _metadata(header: str | None, *, max_depth: int) -> dict[str, Any] | None:
    if header is None:
        return None
    value = parse_json(header.encode("latin-1"), max_depth=max_depth, at="x-pai-metadata")
    if not isinstance(value, dict):
        raise ValidationFailed.at("x-pai-metadata", "must be a JSON object")
    return value
