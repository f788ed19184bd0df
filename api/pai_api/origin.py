"""Requests of web pages that browsers send to other servers without asking them first."""

from urllib.parse import urlsplit

from starlette.requests import Request

from pai.protocol.errors import Forbidden
from pai.settings import Settings


def check_origin(request: Request) -> None:
    """For a request whose body needs no JSON media type, so that no browser asks before it sends it.

    Raises Forbidden for a page of another origin that may not call the API. Only browsers send `Origin`.
    """
    origin = request.headers.get("origin")
    # A proxy may rewrite `Host`; what the browser says of the page it has from that proxy is not rewritten.
    if origin is None or request.headers.get("sec-fetch-site") == "same-origin":
        return
    settings: Settings = request.app.state.settings
    if {origin, "*"}.isdisjoint(settings.cors_origins) and _host(origin) != request.headers.get("host"):
        raise Forbidden("Pages of this origin may not call the API: see PAI_CORS_ORIGINS.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
