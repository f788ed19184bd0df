"""Files of a conversation as a provider takes them: bytes that are ours, addresses that are not.

An address is handed on only where the provider fetches it itself. Where its library would fetch it here instead, the
model is told about the address in words: a server that fetches what users name can be led into its own network.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    UploadedFile,
    UserContent,
)

from pai.models.model import LoadFile
from pai.models.response_facts import Called
from pai.protocol.errors import NotFound

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_SPOKEN = frozenset({"audio/mpeg", "audio/wav"})
_OFFICE = frozenset(
    {
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }
)
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")


class Attachments:
    """Reads file parts and attachment parts for the model that is about to be called."""

    def __init__(self, *, called: Called, load_file: LoadFile | None) -> None:
        self._called = called
        self._load_file = load_file

    async def content(self, part: Mapping[str, Any]) -> UserContent | None:
        """What a user's part adds to the prompt; None for parts that are no files."""
        match part.get("type"):
            case "file":
                return self._file(part)
            case "data-pai-attachment":
                return await self._attachment(part.get("data"))
            case _:
                return None

    async def generated(self, part: Mapping[str, Any], file_id: Any) -> BinaryContent | None:
        """The bytes of a file that a model made."""
        url = part.get("url")
        if isinstance(file_id, str) and self._load_file is not None:
            try:
                data, media_type = await self._load_file(file_id)
            except NotFound:
                return None
            return BinaryContent(data, media_type=media_type)
        return read_data_uri(url, part.get("mediaType")) if isinstance(url, str) else None

    def _file(self, part: Mapping[str, Any]) -> UserContent | None:
        url, media_type, name = part.get("url"), part.get("mediaType"), part.get("filename")
        if not isinstance(url, str):
            return None
        media_type = media_type if isinstance(media_type, str) and media_type else "application/octet-stream"
        name = name if isinstance(name, str) else None
        if url[:5].lower() == "data:":
            found = read_data_uri(url, media_type)
            return _mention(name, media_type, None) if found is None else _inline(found, name, self._called)
        if not url.lower().startswith(("http://", "https://")):
            return _mention(name, media_type, None)
        return _handed_on(url, media_type, self._called) or _mention(name, media_type, url)

    async def _attachment(self, data: Any) -> UserContent | None:
        if not isinstance(data, Mapping) or not isinstance(data.get("fileId"), str):
            return None
        name, stored_type = data.get("filename"), data.get("mediaType")
        name = name if isinstance(name, str) else None
        if self._load_file is None:
            return _mention(name, str(stored_type or "application/octet-stream"), None)
        try:
            content, media_type = await self._load_file(data["fileId"])
        except NotFound:
            return _mention(name, str(stored_type or "application/octet-stream"), None)
        return _inline(BinaryContent(content, media_type=media_type), name, self._called)


def read_data_uri(url: str, media_type: Any) -> BinaryContent | None:
    """The bytes of a `data:` URI, None when it is malformed; the part's media type wins over that of the URI."""
    head, comma, body = url[5:].partition(",")
    if not comma:
        return None
    stated, *flags = head.split(";")
    try:
        data = base64.b64decode(body, validate=True) if "base64" in flags else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        return None
    given = media_type if isinstance(media_type, str) and "/" in media_type else stated
    return BinaryContent(data, media_type=given or "text/plain")


def _handed_on(url: str, media_type: str, called: Called) -> UserContent | None:
    """The address as the provider's interface takes it, None where the library would fetch it here."""
    image, audio, pdf = (
        media_type.startswith("image/"),
        media_type.startswith("audio/"),
        media_type == "application/pdf",
    )
    match called.label:
        case "openai":
            if image:
                return ImageUrl(url, media_type=media_type)
            if audio:
                return AudioUrl(url, media_type=media_type)
            return None if media_type.startswith("video/") else DocumentUrl(url, media_type=media_type)
        case "openai-chat" | "anthropic" if image:
            return ImageUrl(url, media_type=media_type)
        case "anthropic" if pdf:
            return DocumentUrl(url, media_type=media_type)
        case "google" if url.startswith("https://"):
            return UploadedFile(url, "google", media_type=media_type)
        case _:
            return None


def _inline(content: BinaryContent, name: str | None, called: Called) -> UserContent:
    """Text goes into the prompt as text: providers differ in which text formats they take as files.

    What the provider does not take is only mentioned: it would refuse the whole conversation, now and ever after.
    """
    if content.media_type.startswith(_TEXTS) or content.media_type.endswith(("+json", "+xml")):
        text = content.data.decode("utf-8", "replace").replace("\0", "\ufffd")
        return f"Attached file {name or 'without a name'} ({content.media_type}):\n\n{text}"
    taken = len(content.data) > 0 and _is_taken(content.media_type, called)
    return content if taken else _mention(name, content.media_type, None)


def _is_taken(media_type: str, called: Called) -> bool:
    """Whether the interface takes bytes of this type."""
    if media_type == "application/pdf" or media_type in _IMAGES:
        return True
    match called.label:
        case "openai":
            return media_type in _OFFICE
        case "openai-chat":
            return media_type in _SPOKEN
        case "google":
            return media_type.startswith(("image/", "audio/", "video/"))
        case _:
            return False


def _mention(name: str | None, media_type: str, url: str | None) -> str:
    where = f" at {url}" if url else ", which cannot be read"
    return f"[Attached file {name or 'without a name'} ({media_type}){where}]"
