"""Files that a model makes: stored by whoever runs the step, so that messages hold addresses and not megabytes."""

import base64
from dataclasses import dataclass

from pai.models.model import Chunk, StoredFile, StoreFile


@dataclass(frozen=True)
class GeneratedFile:
    """A file that the model made: it becomes a `file` chunk once it is stored."""

    data: bytes
    media_type: str
    metadata: dict[str, dict[str, object]] | None


async def stored_file(mapped: Chunk | GeneratedFile, store: StoreFile | None) -> Chunk:
    """The `file` chunk of a generated file, a data URI without `store`; other chunks as they are."""
    if not isinstance(mapped, GeneratedFile):
        return mapped
    if store is None:
        encoded = base64.b64encode(mapped.data).decode()
        stored = StoredFile(url=f"data:{mapped.media_type};base64,{encoded}")
    else:
        stored = await store(mapped.data, mapped.media_type)
    chunk: Chunk = {"type": "file", "url": stored.url, "mediaType": mapped.media_type}
    metadata = dict(mapped.metadata or {})
    if stored.file_id is not None:
        metadata["pai"] = {**metadata.get("pai", {}), "fileId": stored.file_id}
    return {**chunk, "providerMetadata": metadata} if metadata else chunk
