"""Files that PAI keeps: what is uploaded, and how it is read again."""

from collections.abc import AsyncGenerator, AsyncIterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pai.protocol.errors import ValidationFailed
from pai.protocol.files import (
    CreateFileUrlInput,
    FileIntent,
    FileUploadInput,
    FileUrlResult,
    ReadFileInput,
    StoredFileBody,
    UploadedFile,
    checked_filename,
    checked_media_type,
)
from pai.protocol.ids import is_id, new_id
from pai.protocol.text import clean

if TYPE_CHECKING:
    from pai.client.transport import AgentClientTransport


class FilesClient:
    """Attachment bytes stay with the file provider; a transcript keeps references to them."""

    def __init__(self, transport: "AgentClientTransport") -> None:
        self._transport = transport

    async def upload(
        self,
        body: bytes | AsyncIterable[bytes],
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        byte_size: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> UploadedFile:
        """Belongs to no thread unless `thread_id` is given, and goes when nothing uses it for a day.

        Raises ValidationFailed (also when the body is not as long as `byte_size` says), TooLarge, RateLimited.
        """
        if thread_id is not None and not is_id(thread_id):
            raise ValidationFailed.at("threadId", "not an id")
        if byte_size is not None and byte_size < 0:
            raise ValidationFailed.at("byteSize", "must not be negative")
        if isinstance(body, bytes | bytearray | memoryview):
            body = bytes(body)
            if byte_size not in (None, len(body)):
                raise ValidationFailed.at("byteSize", f"the body has {len(body)} bytes")
            byte_size = len(body)
        elif byte_size is not None:
            body = _as_long_as(body, byte_size)
        upload = FileUploadInput(
            body=body,
            media_type=checked_media_type(media_type),
            filename=None if filename is None else checked_filename(filename),
            thread_id=thread_id,
            byte_size=byte_size,
            metadata=None if metadata is None else clean(metadata),
        )
        return await self._transport.upload_file(upload, key=new_id("key"))

    async def url(
        self, file_id: str, *, intent: FileIntent | None = None, ttl: timedelta | None = None
    ) -> FileUrlResult | None:
        """A signed URL that needs no other credentials until it expires; None when there is no such file.

        Raises ValidationFailed for a `ttl` that is not positive, or longer than the server allows.
        """
        return await self._transport.create_file_url(CreateFileUrlInput(file_id=file_id, intent=intent, ttl=ttl))

    async def read(self, file_id: str, *, first: int | None = None, last: int | None = None) -> StoredFileBody:
        """Raises NotFound, and RangeNotSatisfiable when the file has no byte number `first`."""
        if (first or 0) < 0 or (last is not None and last < (first or 0)):
            raise ValidationFailed.at("first", "the range is empty")
        return await self._transport.read_file(ReadFileInput(file_id=file_id, first=first, last=last))


async def _as_long_as(body: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """The body; a wrong length is found here, before a connection breaks because of it."""
    left = size
    async for piece in body:
        left -= len(piece)
        if left < 0:
            raise ValidationFailed.at("byteSize", f"the body has more than {size} bytes")
        yield piece
    if left:
        raise ValidationFailed.at("byteSize", f"the body has {size - left} bytes")


__all__ = [
    "CreateFileUrlInput",
    "FileUploadInput",
    "FileUrlResult",
    "FilesClient",
    "ReadFileInput",
    "StoredFileBody",
    "UploadedFile",
]
