"""Files on the wire: what is uploaded, how it is described, and how it is read again."""

import re
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from pai.protocol.errors import ValidationFailed
from pai.protocol.text import clean_text
from pai.protocol.wire import WireModel

FileIntent = Literal["view", "download"]

MAX_FILENAME = 255
MAX_MEDIA_TYPE = 127

_TOKEN = r"[A-Za-z0-9!#$&^_.+-]{1,63}"
_MEDIA_TYPE = re.compile(rf"\s*(?P<essence>{_TOKEN}/{_TOKEN})\s*(?:;(?P<parameters>.*))?\Z", re.DOTALL)
_CHARSET = re.compile(r"\s*charset\s*=\s*\"?(?P<charset>[A-Za-z0-9._-]{1,40})\"?\s*\Z", re.IGNORECASE)
_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUploadInput:
    """`body` is bytes, or an async iterable of bytes, which can be sent only once; `byte_size` may be told for that."""

    body: bytes | AsyncIterable[bytes]
    media_type: str
    filename: str | None = None
    thread_id: str | None = None
    byte_size: int | None = None
    metadata: dict[str, Any] | None = None


class UploadedFile(WireModel):
    """Send it as an attachment: `thread.send(text="Look", attachments=[file])`."""

    file_id: str
    media_type: str
    filename: str | None = None
    byte_size: int | None = None
    metadata: dict[str, Any] | None = None


class FileUrlRequest(WireModel):
    """`ttlSeconds`: how long the URL is good for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    intent: FileIntent | None = None
    ttl_seconds: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFileUrlInput:
    file_id: str
    intent: FileIntent | None = None
    ttl: timedelta | None = None


class FileUrlResult(WireModel):
    url: str
    expires_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFileInput:
    """`first` and `last` are the byte range, both included; without them the whole file."""

    file_id: str
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class StoredFileBody:
    """The bytes of a file while they come. Read them to the end, or close it.

    async with await client.files.read(file_id) as body:
        async for piece in body: ...
    """

    media_type: str
    byte_size: int | None
    pieces: AsyncIterator[bytes]
    filename: str | None = None
    close: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.pieces

    async def read(self) -> bytes:
        """All bytes that are left."""
        async with self:
            return b"".join([piece async for piece in self.pieces])

    async def aclose(self) -> None:
        if self.close is not None:
            await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def checked_media_type(text: str, *, at: str = "mediaType") -> str:
    """`type/subtype` in lower case, and for text its charset; other parameters are dropped. Raises ValidationFailed."""
    found = _MEDIA_TYPE.match(text) if text.isascii() else None
    if found is None or len(found["essence"]) > MAX_MEDIA_TYPE:
        raise ValidationFailed.at(at, "must be a media type such as image/png")
    essence = found["essence"].lower()
    if essence.startswith("text/"):
        for parameter in (found["parameters"] or "").split(";"):
            if charset := _CHARSET.match(parameter):
                return f"{essence}; charset={charset['charset'].lower()}"
    return essence


def essence_of(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0]


def checked_filename(text: str, *, at: str = "filename") -> str:
    """A name for people; it is never a path, here or where it is saved. Raises ValidationFailed."""
    name = clean_text(text).strip()
    if not name or name in (".", "..") or len(name.encode()) > MAX_FILENAME:
        raise ValidationFailed.at(at, f"must be a name of 1 to {MAX_FILENAME} bytes in UTF-8")
    if any(letter in "/\\" or letter in _OVERRIDES or unicodedata.category(letter) == "Cc" for letter in name):
        raise ValidationFailed.at(at, "must hold no path, no control characters and no change of direction")
    return name
