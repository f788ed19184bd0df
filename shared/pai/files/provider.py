"""What keeps bytes: it knows keys and nothing of who owns what. A new one is a class with these methods."""

from collections.abc import AsyncGenerator, AsyncIterable
from typing import TYPE_CHECKING, Protocol

from pai.protocol.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from pai.settings import Settings

BLOCK = 256 * 1024
"""Bytes of one read."""


class FilesUnavailable(Unavailable):
    """The provider cannot be used now."""

    title = "The file store is unreachable"


class BytesMissing(NotFound):
    """The provider has nothing under this key."""

    def __init__(self) -> None:
        super().__init__("file", "The bytes of this file are gone.")


class FileProvider(Protocol):
    """Keys are made by the server: letters, digits, `_` and `-`. Every method raises FilesUnavailable."""

    async def write(self, key: str, pieces: AsyncIterable[bytes]) -> None:
        """Keeps the pieces, holding a few of them at a time. All or nothing: also when the iterable raises."""
        ...

    def read(self, key: str, *, first: int, count: int) -> AsyncGenerator[bytes, None]:
        """`count` bytes from number `first` on, in pieces. Raises BytesMissing. Close it when you stop early."""
        ...

    async def delete(self, key: str) -> None:
        """Removes the bytes, and what is left of an upload that was never finished. Nothing there is no error."""
        ...

    async def close(self) -> None: ...


def provider_of(settings: "Settings") -> FileProvider:
    """The provider that the settings name; it connects on first use. Raises DeclarationError."""
    if settings.files.startswith("s3://"):
        from pai.files.s3 import S3Files

        return S3Files.of(settings.files, endpoint_url=settings.s3_endpoint_url, region=settings.s3_region)
    from pai.files.local import LocalFiles

    return LocalFiles.of(settings.files)
