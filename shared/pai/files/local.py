"""Files in a folder, for one machine or a shared volume."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from pai.files.blocking import blocks_of, in_thread
from pai.files.provider import BLOCK, BytesMissing, FilesUnavailable

P = ParamSpec("P")
T = TypeVar("T")

_KEY = re.compile(r"[A-Za-z0-9_-]{3,200}\Z")

logger = logging.getLogger(__name__)


class LocalFiles:
    """Written beside its final name and renamed when it is whole and on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, url: str) -> "LocalFiles":
        return cls(Path(url.removeprefix("file://")).expanduser().absolute())

    async def write(self, key: str, pieces: AsyncIterable[bytes]) -> None:
        path, part = self._paths(key)
        file = await _run(_create, part)
        try:
            async for block in blocks_of(pieces, BLOCK):
                await _run(file.write, block)
            await _run(_finish, file, part, path)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(_run(_discard, file, part)))
            raise

    async def read(self, key: str, *, first: int, count: int) -> AsyncGenerator[bytes, None]:
        path, _ = self._paths(key)
        file = await _run(_open, path, first)
        try:
            while count > 0:
                block = await _run(file.read, min(BLOCK, count))
                if not block:
                    raise FilesUnavailable("The stored file is shorter than it was.")
                count -= len(block)
                yield block
        finally:
            file.close()

    async def delete(self, key: str) -> None:
        await _run(_remove, *self._paths(key))

    async def close(self) -> None:
        """Nothing is held."""

    def _paths(self, key: str) -> tuple[Path, Path]:
        """Where a file is, and where it is while it is written. Its key's end is random, so folders stay small."""
        if not _KEY.match(key):
            raise ValueError(f"not a key: {key!r}")
        folder = self.folder / key[-2:]
        return folder / key, folder / f"{key}.part"


async def _run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await in_thread(None, function, *args, **kwargs)
    except FileNotFoundError:
        raise BytesMissing from None
    except OSError as error:
        logger.warning("The folder of the files cannot be used: %s", error)
        raise FilesUnavailable("The folder of the files cannot be used.") from error


def _create(part: Path) -> BinaryIO:
    part.parent.mkdir(parents=True, exist_ok=True)
    return open(part, "wb", buffering=0, opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _finish(file: BinaryIO, part: Path, path: Path) -> None:
    os.fsync(file.fileno())
    file.close()
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _discard(file: BinaryIO, part: Path) -> None:
    file.close()
    part.unlink(missing_ok=True)


def _open(path: Path, first: int) -> BinaryIO:
    file = open(path, "rb", buffering=0)  # noqa: SIM115  whoever reads closes it
    file.seek(first)
    return file


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
