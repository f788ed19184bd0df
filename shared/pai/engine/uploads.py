"""Uploads: bytes stream through to the provider, and a row says when they are all there."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from fnmatch import fnmatchcase

from pai.engine import receipts, upload_rows
from pai.engine.runtime import Caller, Reply, Runtime
from pai.protocol.errors import (
    IdempotencyConflict,
    TooLarge,
    ValidationFailed,
)
from pai.protocol.files import FileUploadInput, UploadedFile, checked_filename, checked_media_type, essence_of
from pai.protocol.ids import ID_RULE, is_id, new_id
from pai.protocol.json import dumps
from pai.protocol.text import clean
from pai.protocol.times import now_ms as now
from pai.store.tables import File

MAX_METADATA_BYTES = 8 * 1024
_FIRST_MEASURED = 64 * 1024
"""Bytes; an upload that does not say its size counts from here on, and again at every doubling."""


class _Body:
    """Counts and hashes the bytes on their way, and stops them when they are too many or too few."""

    def __init__(self, pieces: bytes | AsyncIterable[bytes], *, limit: int, declared: int | None) -> None:
        self._pieces = pieces
        self._limit = limit
        self._declared = declared
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = _one(self._pieces) if isinstance(self._pieces, bytes) else self._pieces
        async for piece in pieces:
            self.size += len(piece)
            if self._declared is not None and self.size > self._declared:
                raise ValidationFailed.at("byteSize", f"the body has more than {self._declared} bytes")
            if self.size > self._limit:
                raise TooLarge(limit_bytes=self._limit)
            self._hash.update(piece)
            yield piece
        if self._declared is not None and self.size != self._declared:
            raise ValidationFailed.at("byteSize", f"the body has {self.size} bytes")


async def _one(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def upload_file(
    runtime: Runtime, caller: Caller, upload: FileUploadInput, *, key: str | None = None
) -> Reply[UploadedFile]:
    """Keeps a file while it comes. Whoever gives up in the middle leaves nothing.

    The same key with the same request, bytes included, gets the recorded answer. Raises ValidationFailed, TooLarge,
    RateLimited (the identity stores too much), IdempotencyConflict, FilesUnavailable.
    """
    limit = runtime.settings.max_file_bytes
    declared = len(upload.body) if isinstance(upload.body, bytes) else upload.byte_size
    file = _described(runtime, caller, upload, declared)
    if declared is not None and declared > limit:
        raise TooLarge(limit_bytes=limit)
    body = _Body(upload.body, limit=limit, declared=upload.byte_size)
    if key is not None:
        file.request_key, file.request_hash = key, _hash_of(file, upload)
    recorded = await upload_rows.begin(runtime, file, thread_id=upload.thread_id, trusted=caller.trusted)
    if recorded is not None:
        return Reply(await _again(runtime, recorded, file, body), replayed=True)
    return Reply(uploaded(await _written(runtime, file, body)))


async def store_generated(
    runtime: Runtime, *, owner: str, agent: str, version: str, message_id: str, data: bytes, media_type: str
) -> File:
    """Keeps a file that a model made for a message of a thread. Raises NotFound when either is gone."""
    file = File(
        file_id=new_id("file"),
        owner=owner,
        agent=agent,
        version=version,
        media_type=media_type,
        byte_size=len(data),
        created_at=now(),
    )
    await upload_rows.begin_generated(runtime, file)
    return await _written(runtime, file, _Body(data, limit=len(data), declared=None), used_by=message_id)


def uploaded(file: File) -> UploadedFile:
    return UploadedFile(
        file_id=file.file_id,
        media_type=file.media_type,
        filename=file.filename,
        byte_size=file.byte_size,
        metadata=file.meta,
    )


def _described(runtime: Runtime, caller: Caller, upload: FileUploadInput, declared: int | None) -> File:
    media_type = checked_media_type(upload.media_type)
    accepted = runtime.settings.file_types
    if accepted and not any(fnmatchcase(essence_of(media_type), pattern.lower()) for pattern in accepted):
        raise ValidationFailed.at("mediaType", f"only {', '.join(accepted)}")
    if upload.thread_id is not None and not is_id(upload.thread_id):
        raise ValidationFailed.at("threadId", ID_RULE)
    if declared is not None and declared < 0:
        raise ValidationFailed.at("byteSize", "must not be negative")
    metadata = None if upload.metadata is None else clean(upload.metadata)
    if metadata is not None and not isinstance(metadata, dict):
        raise ValidationFailed.at("metadata", "must be an object")
    if metadata is not None and len(dumps(metadata)) > MAX_METADATA_BYTES:
        raise ValidationFailed.at("metadata", f"must have at most {MAX_METADATA_BYTES} bytes")
    return File(
        file_id=new_id("file"),
        owner=caller.owner,
        agent=caller.agent.name,
        media_type=media_type,
        filename=None if upload.filename is None else checked_filename(upload.filename),
        byte_size=declared or 0,
        meta=metadata,
        created_at=now(),
    )


def _hash_of(file: File, upload: FileUploadInput) -> str:
    return receipts.request_hash("upload", [file.media_type, file.filename, upload.thread_id, file.meta])


async def _again(runtime: Runtime, recorded: File, file: File, body: _Body) -> UploadedFile:
    """The recorded answer, when the bytes are the same. Raises IdempotencyConflict, ValidationFailed."""
    if recorded.request_hash != file.request_hash:
        raise IdempotencyConflict
    async with _in_time(runtime), aclosing(aiter(body)) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            pass
    if (body.size, body.sha256) != (recorded.byte_size, recorded.sha256):
        raise IdempotencyConflict
    return uploaded(recorded)


async def _written(runtime: Runtime, file: File, body: _Body, *, used_by: str | None = None) -> File:
    try:
        async with _in_time(runtime):
            await runtime.files.write(file.file_id, _measured(runtime, file, body))
        runtime.faults.hit("upload.before_ready")
        declared, file.byte_size, file.sha256 = file.byte_size, body.size, body.sha256
        if body.size > declared:
            await upload_rows.measured(runtime, file)
        await upload_rows.finish(runtime, file, used_by=used_by)
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(upload_rows.give_up(runtime, file)))
        raise
    return file


@asynccontextmanager
async def _in_time(runtime: Runtime) -> AsyncIterator[None]:
    """Raises ValidationFailed when the bytes come too slowly."""
    timeout = runtime.settings.upload_timeout.total_seconds()
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise ValidationFailed(f"The upload took longer than {timeout:g} seconds.") from None


async def _measured(runtime: Runtime, file: File, body: _Body) -> AsyncIterator[bytes]:
    """The bytes; while they are more than the row says, what they are so far is counted. Raises RateLimited."""
    async for piece in body:
        if body.size > max(2 * file.byte_size, _FIRST_MEASURED):
            file.byte_size = body.size
            await upload_rows.measured(runtime, file)
        yield piece
