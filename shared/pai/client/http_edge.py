"""Where HTTP ends: what httpx raises and what a server answers become PAI's errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from pydantic import ValidationError

from pai.protocol.errors import (
    Forbidden,
    NotFound,
    PaiError,
    RateLimited,
    TransportError,
    Unauthenticated,
    Unavailable,
    from_problem,
)
from pai.protocol.json import loads

PROBLEM = "application/problem+json"


@contextmanager
def transport_errors() -> Iterator[None]:
    """Foreign errors become TransportError; it keeps the original as its cause."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise TransportError(f"The server could not be reached: {error or type(error).__name__}") from error
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PaiError):
            raise
        raise TransportError(f"The server answered something else than the protocol: {error}") from error


def is_connection_error(error: PaiError) -> bool:
    """Whether the request may not have arrived, so that an idempotent one is worth sending again."""
    return isinstance(error, TransportError) and isinstance(error.__cause__, httpx.TransportError)


async def check(response: httpx.Response) -> httpx.Response:
    """Raises the typed error of a response that is none of 2xx."""
    if response.is_success:
        return response
    body = await response.aread()
    raise _error(response, body)


def _error(response: httpx.Response, body: bytes) -> PaiError:
    try:
        problem = loads(body)
    except ValueError:
        problem = None
    if isinstance(problem, dict) and isinstance(problem.get("code"), str):
        error = _typed(problem)
        if type(error) is PaiError:
            # A code that this client does not know still says whether trying again can help.
            error.status = response.status_code  # type: ignore[misc]
            error.code = problem["code"]  # type: ignore[misc]
        return error
    return _untyped(response)


def _typed(problem: dict[str, Any]) -> PaiError:
    try:
        return from_problem(problem)
    except (ValidationError, TypeError, ValueError, AttributeError) as error:
        return TransportError(f"The server answered with a problem that cannot be read: {error}")


def _untyped(response: httpx.Response) -> PaiError:
    """Answers of a proxy, or of something that is no PAI server."""
    detail = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
    match response.status_code:
        case 401:
            return Unauthenticated(detail)
        case 403:
            return Forbidden(detail)
        case 404:
            return NotFound("agent", detail)
        case 429:
            return RateLimited(detail, limit=0, retry_after=_seconds(response.headers.get("retry-after")))
        case 502 | 503 | 504:
            return Unavailable(detail, retry_after=_seconds(response.headers.get("retry-after")) or 1.0)
    error = TransportError(detail)
    error.status = response.status_code  # type: ignore[misc]
    return error


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
