"""The token of an `Authorization` header."""

from starlette.requests import Request

MAX_TOKEN = 16 * 1024


def bearer_token(request: Request) -> str | None:
    """None when there is none, or something that is too long to be one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN else None
