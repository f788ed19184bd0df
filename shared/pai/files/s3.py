"""Files in a bucket of Amazon S3, or of any server that speaks its protocol.

The SDK blocks, so it runs in threads of its own. Large files go up in parts, and are seen only when all are there.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from pai.files.blocking import blocks_of, in_thread
from pai.files.provider import BLOCK, BytesMissing, FilesUnavailable
from pai.protocol.errors import DeclarationError

try:
    from boto3.session import Session  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
except ImportError as error:
    raise DeclarationError("Files in S3 need boto3: install pai-backend[s3].") from error

P = ParamSpec("P")
T = TypeVar("T")

PART = 8 * 1024 * 1024
"""Bytes of one part; the protocol takes 10,000 of them, each but the last of 5 MiB or more."""

_THREADS = 16
_MISSING = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})

logger = logging.getLogger(__name__)


class S3Files:
    """`prefix` is put before every key. Without credentials of its own: the SDK's usual places are searched."""

    def __init__(self, bucket: str, *, prefix: str = "", endpoint_url: str | None = None, region: str | None = None):
        self.bucket = bucket
        self.prefix = prefix
        self._endpoint_url = endpoint_url
        self._region = region
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pai-s3")

    @classmethod
    def of(cls, url: str, *, endpoint_url: str | None, region: str | None) -> "S3Files":
        """`s3://bucket/prefix`. Raises DeclarationError."""
        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment:
            raise DeclarationError(f"PAI_FILES={url}: expected s3://bucket or s3://bucket/prefix.")
        prefix = parts.path.strip("/")
        return cls(parts.netloc, prefix=f"{prefix}/" if prefix else "", endpoint_url=endpoint_url, region=region)

    async def write(self, key: str, pieces: AsyncIterable[bytes]) -> None:
        blocks = blocks_of(pieces, PART)
        first = await anext(blocks, b"")
        if len(first) < PART:
            await self._run(self._client.put_object, **self._at(key), Body=first)
            return
        upload = (await self._run(self._client.create_multipart_upload, **self._at(key)))["UploadId"]
        try:
            parts = [await self._part(key, upload, 1, first)]
            del first
            async for block in blocks:
                parts.append(await self._part(key, upload, len(parts) + 1, block))
            await self._run(
                self._client.complete_multipart_upload,
                **self._at(key),
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._abort(key, upload)))
            raise

    async def read(self, key: str, *, first: int, count: int) -> AsyncGenerator[bytes, None]:
        if count <= 0:
            return
        span = f"bytes={first}-{first + count - 1}"
        body = (await self._run(self._client.get_object, **self._at(key), Range=span))["Body"]
        try:
            while count > 0:
                block: bytes = await self._run(body.read, min(BLOCK, count))
                if not block:
                    raise FilesUnavailable("The stored file is shorter than it was.")
                count -= len(block)
                yield block
        finally:
            body.close()

    async def delete(self, key: str) -> None:
        await self._run(self._client.delete_object, **self._at(key))
        found = await self._run(
            self._client.list_multipart_uploads, Bucket=self.bucket, Prefix=self.prefix + key, MaxUploads=10
        )
        for upload in found.get("Uploads", ()):
            if upload["Key"] == self.prefix + key:
                await self._abort(key, upload["UploadId"])

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _client(self) -> Any:
        # Many servers know no checksums but the old one, and buckets in the host's name only Amazon.
        config = Config(
            retries={"mode": "standard", "max_attempts": 4},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=_THREADS,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "auto" if self._endpoint_url is None else "path"},
        )
        return Session().client("s3", endpoint_url=self._endpoint_url, region_name=self._region, config=config)

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + key}

    async def _part(self, key: str, upload: str, number: int, block: bytes) -> dict[str, Any]:
        place = {**self._at(key), "UploadId": upload, "PartNumber": number}
        answer = await self._run(self._client.upload_part, **place, Body=block)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    async def _abort(self, key: str, upload: str) -> None:
        try:
            await self._run(self._client.abort_multipart_upload, **self._at(key), UploadId=upload)
        except BytesMissing:
            return
        except FilesUnavailable as error:
            logger.warning("An upload to S3 was not aborted; the sweep will do it: %s", error)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await in_thread(self._threads, function, *args, **kwargs)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                raise BytesMissing from None
            logger.warning("The bucket of the files refused: %s", error)
            raise FilesUnavailable("The bucket of the files cannot be used.") from error
        except (BotoCoreError, OSError) as error:
            logger.warning("The bucket of the files cannot be reached: %s", error)
            raise FilesUnavailable("The bucket of the files cannot be reached.") from error
