"""The files of one model call: attachments that the model is given, and files that it makes."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pai.engine.files import files_of, open_pieces
from pai.engine.runtime import Caller, Runtime
from pai.engine.uploads import store_generated
from pai.fold.reserved import Reserved
from pai.models import ModelError
from pai.models.model import StoredFile
from pai.protocol.errors import NotFound, Unavailable
from pai.protocol.files import essence_of
from pai.protocol.identity import Identity
from pai.store.tables import File, Thread

_NOW = "A file could not be read or stored just now."


class ModelFiles:
    """`message_id`: the message that the call writes. Files are those of the thread's owner and agent only."""

    def __init__(self, runtime: Runtime, thread: Thread, *, message_id: str) -> None:
        self._runtime = runtime
        self._thread = thread
        self._message_id = message_id
        self._files: dict[str, File] = {}

    async def prepare(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Finds the files of a history. Older ones are left out once the newest have used up what one call may hold."""
        named = [file_id for message in reversed(messages) for file_id in _named(message.get("parts") or ())]
        if not named:
            return
        agent = self._runtime.registry.get(self._thread.agent)
        caller = Caller(Identity.of_owner(self._thread.owner), agent)
        found = await files_of(self._runtime, caller, named)
        left = self._runtime.settings.model_file_bytes
        for file_id in dict.fromkeys(named):
            file = found.get(file_id)
            if file is not None and file.byte_size <= left:
                left -= file.byte_size
                self._files[file_id] = file

    async def load(self, file_id: str) -> tuple[bytes, str]:
        """The bytes and the media type. Raises NotFound for what is not there or too much, and ModelError."""
        file = self._files.get(file_id)
        if file is None:
            raise NotFound("file")
        try:
            pieces = await open_pieces(self._runtime, file, first=0, count=file.byte_size)
            return b"".join([piece async for piece in pieces]), essence_of(file.media_type)
        except Unavailable as error:
            raise ModelError(_NOW, retryable=True) from error

    async def store(self, data: bytes, media_type: str) -> StoredFile:
        """Keeps what the model made. Its address is that of the API, which asks who reads it. Raises ModelError."""
        try:
            file = await store_generated(
                self._runtime,
                owner=self._thread.owner,
                agent=self._thread.agent,
                version=self._thread.version,
                message_id=self._message_id,
                data=data,
                media_type=media_type,
            )
        except (Unavailable, NotFound) as error:
            raise ModelError(_NOW, retryable=True) from error
        base = (self._runtime.settings.public_url or "").rstrip("/")
        url = f"{base}/api/pai/{quote(file.agent, safe='')}/files/{file.file_id}"
        return StoredFile(url=url, file_id=file.file_id)


def _named(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The files that parts refer to: attachments of people, and what a model made before."""
    found: list[Any] = []
    for part in parts:
        match part.get("type"):
            case Reserved.ATTACHMENT:
                found.append((part.get("data") or {}).get("fileId"))
            case "file":
                found.append(((part.get("providerMetadata") or {}).get("pai") or {}).get("fileId"))
    return [file_id for file_id in found if isinstance(file_id, str)]
