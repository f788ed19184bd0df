"""Every provider keeps bytes in the same way: all or nothing, under keys that lead nowhere else."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pai.files.provider import BLOCK, BytesMissing, FileProvider, FilesUnavailable, provider_of
from pai.protocol.errors import DeclarationError
from pai.settings import Settings
from support.file_stores import FileStore

MIB = 1024 * 1024
SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 17 * MIB]


@pytest.fixture
async def provider(file_store: FileStore) -> AsyncIterator[FileProvider]:
    made = file_store.provider()
    yield made
    await made.close()


async def in_pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def read(provider: FileProvider, key: str, first: int, count: int) -> bytes:
    async with aclosing(provider.read(key, first=first, count=count)) as pieces:
        return b"".join([piece async for piece in pieces])


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_written_is_read(provider: FileProvider, file_store: FileStore, size: int) -> None:
    data = os.urandom(size)
    await provider.write("file_a-1", in_pieces(data))
    assert await read(provider, "file_a-1", 0, size) == data
    assert file_store.contents() == {"file_a-1"}


async def test_any_part_is_read(provider: FileProvider) -> None:
    data = os.urandom(3 * BLOCK)
    await provider.write("file_a-1", in_pieces(data))
    for first, count in ((0, 1), (3 * BLOCK - 1, 1), (BLOCK - 1, 2), (5, BLOCK), (BLOCK, 2 * BLOCK), (7, 0)):
        assert await read(provider, "file_a-1", first, count) == data[first : first + count]


@pytest.mark.parametrize("before", [0, 1, 9 * MIB])
async def test_a_body_that_breaks_leaves_nothing(provider: FileProvider, file_store: FileStore, before: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in in_pieces(bytes(before)):
            yield piece
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await provider.write("file_a-1", broken())
    assert file_store.contents() == set()


@pytest.mark.parametrize("before", [1, 9 * MIB])
async def test_a_writer_that_is_cancelled_leaves_nothing(
    provider: FileProvider, file_store: FileStore, before: int
) -> None:
    stuck = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        async for piece in in_pieces(bytes(before)):
            yield piece
        stuck.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(provider.write("file_a-1", endless()))
    await stuck.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert file_store.contents() == set()


async def test_no_more_than_a_few_pieces_are_held(provider: FileProvider) -> None:
    ahead = 0
    most = 0

    class Piece(bytes):
        def __del__(self) -> None:
            nonlocal ahead
            ahead -= 1

    async def counted() -> AsyncIterator[bytes]:
        nonlocal ahead, most
        for _ in range(64):
            ahead += 1
            most = max(most, ahead)
            yield Piece(MIB)

    await provider.write("file_a-1", counted())
    assert most <= 20


async def test_a_reader_that_stops_early_holds_nothing(provider: FileProvider) -> None:
    await provider.write("file_a-1", in_pieces(bytes(4 * BLOCK)))
    for _ in range(40):  # more than a client has connections
        async with aclosing(provider.read("file_a-1", first=0, count=4 * BLOCK)) as pieces:
            assert len(await anext(pieces)) == BLOCK
    assert len(await read(provider, "file_a-1", 0, 4 * BLOCK)) == 4 * BLOCK


async def test_what_is_not_there_is_missing(provider: FileProvider) -> None:
    with pytest.raises(BytesMissing):
        await read(provider, "file_b-1", 0, 1)


async def test_deleting_twice_is_deleting_once(provider: FileProvider, file_store: FileStore) -> None:
    await provider.write("file_a-1", in_pieces(b"content"))
    await provider.write("file_a-12", in_pieces(b"other"))
    await provider.delete("file_a-1")
    await provider.delete("file_a-1")
    assert file_store.contents() == {"file_a-12"}


async def test_deleting_removes_what_a_dead_process_left(provider: FileProvider, file_store: FileStore) -> None:
    if file_store.folder is not None:
        (file_store.folder / "-1").mkdir(parents=True)
        (file_store.folder / "-1" / "file_a-1.part").write_bytes(b"half")
    else:
        for key in ("file_a-1", "file_a-12"):
            file_store.bucket.Object(f"kept/{key}").initiate_multipart_upload()
    assert "file_a-1.part" in file_store.contents()
    await provider.delete("file_a-1")
    assert "file_a-1.part" not in file_store.contents()
    assert ("file_a-12.part" in file_store.contents()) == (file_store.kind == "s3")


@pytest.mark.parametrize("key", ["", "..", "../x", "a/b", "/etc/passwd", "a\0b", "a.part", "x" * 201, "ä" * 5])
async def test_a_key_is_never_a_path(local_store: FileStore, key: str) -> None:
    provider = local_store.provider()
    for call in (provider.write(key, in_pieces(b"x")), provider.delete(key), read(provider, key, 0, 1)):
        with pytest.raises(ValueError, match="not a key"):
            await call


async def test_a_folder_that_cannot_be_used_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    provider = provider_of(Settings(files=str(tmp_path / "taken")))
    with pytest.raises(FilesUnavailable):
        await provider.write("file_a-1", in_pieces(b"x"))


async def test_a_bucket_that_is_not_there_is_unavailable(s3_store: FileStore) -> None:
    provider = provider_of(Settings(**{**s3_store.settings, "files": "s3://nobody-made-it"}))
    with pytest.raises(FilesUnavailable):
        await provider.write("file_a-1", in_pieces(b"x"))
    await provider.close()


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "s3://bucket?x=1"])
def test_a_wrong_address_is_said_at_the_start(url: str) -> None:
    with pytest.raises(DeclarationError, match="s3://bucket"):
        provider_of(Settings(files=url))
