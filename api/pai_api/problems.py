"""The one place where errors become `application/problem+json`.

Every answer that is not a success has the same shape, whoever found the fault: the engine, pydantic, the router, or a
bug. A bug says nothing about itself to the caller; the log has it.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pai.log.errors import LogUnavailable
from pai.protocol.errors import (
    MAX_ERRORS,
    FieldError,
    PaiError,
    RangeNotSatisfiable,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
)
from pai.protocol.field_errors import field_message
from pai.protocol.json import dumps

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_TEXT = 300


class NoSuchRoute(PaiError):
    code = "not_found"
    status = 404
    title = "Not found"

    def extra(self) -> dict[str, Any]:
        return {"what": "route"}


class MethodNotAllowed(PaiError):
    code = "method_not_allowed"
    status = 405
    title = "This route has other methods"


class Internal(PaiError):
    """A bug. The detail stays in the log."""

    def __init__(self) -> None:
        super().__init__("Something went wrong on the server.")


def problem(error: PaiError, *, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error, with the headers that HTTP wants beside it."""
    all_headers = dict(headers or {})
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        all_headers["retry-after"] = str(math.ceil(retry_after))
    if isinstance(error, RangeNotSatisfiable):
        all_headers["content-range"] = f"bytes */{error.byte_size}"
    if isinstance(error, Unauthenticated):
        all_headers.setdefault("www-authenticate", "Bearer")
    return Response(dumps(error.problem()), status_code=error.status, headers=all_headers, media_type=MEDIA_TYPE)


def invalid(errors: Sequence[Mapping[str, Any]], *, value: Any = None) -> ValidationFailed:
    """pydantic's errors as fields: where in the request, and what is wrong, never what was sent."""
    fields = [
        FieldError(
            path=_path(error["loc"], value)[:MAX_TEXT],
            message=field_message(error),
        )
        for error in errors[:MAX_ERRORS]
    ]
    return ValidationFailed(errors=fields)


def _path(location: Sequence[str | int], value: Any) -> str:
    """`message.parts.0.text`. pydantic also names the branch of a tagged union; that is no place in the request."""
    steps: list[str] = []
    tagged = False
    for step in location:
        if isinstance(value, dict):
            if not tagged and value.get("type") == step:
                tagged = True
                continue
            value = value.get(step)
        elif isinstance(value, list):
            value = value[step] if isinstance(step, int) and step < len(value) else None
        tagged = False
        steps.append(str(step))
    return ".".join(steps) or "body"


async def _pai_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PaiError)
    if isinstance(error, LogUnavailable):
        # Its detail names hosts and ports.
        return problem(Unavailable(error.title))
    if error.status == 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(Internal())
    return problem(error)


async def _invalid_parameters(_: Request, error: Exception) -> Response:
    # FastAPI says where a parameter came from (`query`, `path`) before its name.
    assert isinstance(error, RequestValidationError)
    return problem(invalid([{**item, "loc": item["loc"][1:]} for item in error.errors()]))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(NoSuchRoute("There is no such route; /docs shows those that there are."))
    if error.status_code == 405:
        return problem(MethodNotAllowed(), headers=error.headers)
    return problem(ValidationFailed(str(error.detail)), headers=error.headers)


HANDLERS: dict[int | type[Exception], Any] = {
    PaiError: _pai_error,
    RequestValidationError: _invalid_parameters,
    HTTPException: _http_error,
}
"""What FastAPI is given. Errors without a handler reach the middleware that answers `Internal`."""
