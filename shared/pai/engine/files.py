"""Files from outside: find, read, and hand out URLs for them."""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.runtime import Caller, Runtime
from pai.engine.signing import signing_key
from pai.files.signed_urls import Grant
from pai.protocol.errors import Forbidden, NotFound, RangeNotSatisfiable, ValidationFailed
from pai.protocol.files import CreateFileUrlInput, FileIntent, FileUrlResult, ReadFileInput, StoredFileBody
from pai.protocol.times import iso, now_ms
from pai.store.tables import File, FileState, FileTable, table_of

_FILE = table_of(FileTable)
_READY = select(_FILE).where(
    _FILE.c.file_id.in_(bindparam("file_ids", expanding=True)),
    _FILE.c.owner == bindparam("owner"),
    _FILE.c.agent == bindparam("agent"),
    _FILE.c.state == FileState.ready.value,
)
_GRANTED = select(_FILE).where(
    _FILE.c.file_id == bindparam("file_id"),
    _FILE.c.agent == bindparam("agent"),
    _FILE.c.state == FileState.ready.value,
)
# The state as a literal: only then the database knows that the partial index has all that is asked for.
_STORED = select(func.coalesce(func.sum(_FILE.c.byte_size), 0)).where(
    _FILE.c.owner == bindparam("owner"), text("state <> 'deleting'")
)

_PURPOSE = "file urls"


async def files_of(runtime: Runtime, caller: Caller, file_ids: Sequence[str]) -> dict[str, File]:
    """Those of the caller's files that are ready, by id."""
    parameters = {"file_ids": list(set(file_ids)), "owner": caller.owner, "agent": caller.agent.name}
    async with runtime.store.autocommit() as connection:
        rows = (await connection.execute(_READY, parameters)).mappings()
        return {file.file_id: file for file in map(File.of, rows)}


async def get_file(runtime: Runtime, caller: Caller, file_id: str) -> File:
    """Raises NotFound, also for another identity's file."""
    file = (await files_of(runtime, caller, [file_id])).get(file_id)
    if file is None:
        raise NotFound("file")
    return file


async def read_file(runtime: Runtime, caller: Caller, request: ReadFileInput) -> StoredFileBody:
    """The bytes of a file, or a part of them. Raises NotFound, RangeNotSatisfiable, ValidationFailed."""
    file = await get_file(runtime, caller, request.file_id)
    first, last = request.first or 0, request.last
    if first < 0 or (last is not None and last < first):
        raise ValidationFailed.at("first", "the range is empty")
    size = file.byte_size
    if first >= size and (request.first is not None or last is not None):
        raise RangeNotSatisfiable(byte_size=size)
    count = size - first if last is None else min(last + 1, size) - first
    pieces = await open_pieces(runtime, file, first=first, count=count)
    return StoredFileBody(
        media_type=file.media_type, byte_size=count, pieces=pieces, filename=file.filename, close=pieces.aclose
    )


async def open_pieces(runtime: Runtime, file: File, *, first: int, count: int) -> AsyncGenerator[bytes, None]:
    """The bytes while they come. What is wrong with the store is raised here, not when an answer has begun.

    Raises NotFound, FilesUnavailable.
    """
    source = runtime.files.read(file.file_id, first=first, count=count)
    try:
        begin = await anext(source, b"")
    except BaseException:
        await source.aclose()
        raise
    pieces = _continued(begin, source)
    await anext(pieces)  # up to its first yield, so that closing it closes the source
    return pieces


async def _continued(begin: bytes, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        if begin:
            yield begin
        del begin
        async for piece in source:
            yield piece
    finally:
        await source.aclose()


async def create_file_url(runtime: Runtime, caller: Caller, request: CreateFileUrlInput) -> FileUrlResult | None:
    """A URL that needs no other credentials until it expires; None when the caller has no such file.

    Without `PAI_PUBLIC_URL` it is a path on the server. Raises ValidationFailed for a `ttl` out of bounds.
    """
    settings = runtime.settings
    ttl = request.ttl or settings.file_url_ttl
    if request.ttl is not None and not timedelta(0) < request.ttl <= settings.max_file_url_ttl:
        longest = settings.max_file_url_ttl.total_seconds()
        raise ValidationFailed.at("ttlSeconds", f"must be from 1 to {longest:g}")
    file = (await files_of(runtime, caller, [request.file_id])).get(request.file_id)
    if file is None:
        return None
    expires_at = now_ms() // 1000 + max(1, round(ttl.total_seconds()))
    grant = Grant(file.agent, file.file_id, request.intent or "view", expires_at)
    path = grant.path(await signing_key(runtime, _PURPOSE))
    return FileUrlResult(url=f"{(settings.public_url or '').rstrip('/')}{path}", expires_at=iso(expires_at * 1000))


async def granted_file(
    runtime: Runtime, *, agent: str, file_id: str, intent: FileIntent, expires_at: int, signature: str
) -> File:
    """The file that a signed URL opens. Raises NotFound, and Forbidden for a URL that has expired."""
    grant = Grant(agent, file_id, intent, expires_at)
    if not grant.is_signed(await signing_key(runtime, _PURPOSE), signature):
        raise NotFound("file")
    if expires_at * 1000 <= now_ms():
        raise Forbidden(f"This URL was good until {datetime.fromtimestamp(expires_at, UTC):%Y-%m-%d %H:%M:%S} UTC.")
    async with runtime.store.autocommit() as connection:
        row = (await connection.execute(_GRANTED, {"file_id": file_id, "agent": agent})).mappings().first()
    if row is None:
        raise NotFound("file")
    return File.of(row)


async def stored_bytes(connection: AsyncConnection, owner: str) -> int:
    """The bytes of all files of an identity, those that are being uploaded as far as their size is known."""
    total: int = (await connection.execute(_STORED, {"owner": owner})).scalar_one()
    return int(total)
