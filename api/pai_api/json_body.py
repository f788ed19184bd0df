"""A request body becomes a checked record here, once: bounded bytes, clean text, strict JSON, one validation.

Text is cleaned in the raw bytes, before parsing: an escaped NUL or lone surrogate becomes U+FFFD, so that nothing
behind this door ever meets one. NaN, infinities, invalid UTF-8 and bodies that are too deep or too long are refused.
"""

import asyncio
import re
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from pai.protocol.errors import TooLarge, ValidationFailed
from pai.protocol.json import loads
from pai.protocol.wire import WireModel
from pai.settings import Settings
from pai_api.origin import check_origin
from pai_api.problems import invalid

TRequest = TypeVar("TRequest", bound=WireModel)

_ESCAPE = re.compile(
    rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<bad>\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2}))"
    rb"|\\."
)
_JSON_TYPE = re.compile(r"application/(?:[\w.!#$&^+-]+\+)?json\Z", re.IGNORECASE)


class JsonBody(Generic[TRequest]):
    """Reads requests of one kind. Usable as a dependency, and called directly on the hot path.

    `optional`: no body at all means the empty object.
    """

    def __init__(self, model: type[TRequest], *, optional: bool = False) -> None:
        self.model = model
        self.optional = optional

    async def __call__(self, request: Request) -> TRequest:
        """Raises ValidationFailed, TooLarge, and Forbidden for no body from a page of a foreign origin."""
        settings: Settings = request.app.state.settings
        try:
            async with asyncio.timeout(settings.body_timeout.total_seconds()):
                data = await read_body(request, limit=settings.max_body_bytes)
        except TimeoutError:
            raise ValidationFailed.at("body", "did not arrive in time") from None
        if not data and self.optional:
            check_origin(request)
            value: Any = {}
        else:
            _check_content_type(request)
            value = parse_json(data, max_depth=settings.max_json_depth)
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            fields = error.errors(include_url=False, include_input=False)
            raise invalid(fields, value=value) from None


async def read_body(request: Request, *, limit: int) -> bytes:
    """The whole body; a longer one is refused as soon as that is known, by its declared length or while it arrives.

    Raises TooLarge.
    """
    declared = request.headers.get("content-length")
    if declared is not None and declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise TooLarge(limit_bytes=limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise TooLarge(limit_bytes=limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def parse_json(data: bytes, *, max_depth: int, at: str = "body") -> Any:
    """Clean JSON values. Raises ValidationFailed `at` the place that the data came from."""
    if b"\\u" in data:
        data = _ESCAPE.sub(_cleaned, data)
    try:
        value = loads(data)
    except ValueError as error:
        # orjson quotes nothing of the document, only what is wrong and where.
        raise ValidationFailed.at(at, f"this is not JSON: {error}") from None
    # Fewer brackets than levels cannot be too deep, and that is every ordinary request.
    if data.count(b"[") + data.count(b"{") > max_depth and _deeper_than(value, max_depth):
        raise ValidationFailed.at(at, f"nested deeper than {max_depth} levels")
    return value


def _cleaned(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if match.lastgroup == "bad" else match.group()


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    while layer and levels >= 0:
        levels -= 1
        containers = (
            item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, dict | list)
        )
        layer = [item for items in containers for item in items]
    return bool(layer)


def _check_content_type(request: Request) -> None:
    # A browser sends any other type across origins without asking first, so guessing would open a door.
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if not _JSON_TYPE.match(media_type.strip()) or charset not in ("", "utf-8"):
        raise ValidationFailed.at("content-type", "must be application/json in UTF-8")
