"""Stored parts of an assistant's step to the parts of a pydantic-ai response."""

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    FilePart,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from pai.models.attachments import Attachments
from pai.models.part_metadata import PartMetadata, read_metadata
from pai.models.sources import read_citations
from pai.models.tool_parts import tool_name


class ResponseParts:
    """Collects the parts. With `same` the response came from the interface that is called now.

    Otherwise ids and signatures are left out, and so are reasoning and the tools that the other provider ran itself:
    nobody else can read them.
    """

    def __init__(self, *, same: bool) -> None:
        self._same = same
        self.parts: list[ModelResponsePart] = []

    async def add(self, part: Mapping[str, Any], attachments: Attachments) -> None:
        metadata = read_metadata(part.get("providerMetadata"))
        match part.get("type"):
            case "text":
                self._text(part, metadata)
            case "reasoning" if self._same:
                self._reasoning(part, metadata)
            case "file":
                await self._file(part, metadata, attachments)
            case "custom" if self._same and str(part.get("kind")).endswith(".compaction"):
                content = metadata.own.get("content")
                self.parts.append(
                    CompactionPart(content if isinstance(content, str) else None, id=metadata.id, **_known(metadata))
                )

    def add_call(self, part: Mapping[str, Any], name: str, call_id: str) -> None:
        metadata = self._metadata(part, "callProviderMetadata", "resultProviderMetadata")
        self.parts.append(ToolCallPart(name, _arguments(part), call_id, id=metadata.id, **_known(metadata)))

    def add_provider_call(self, part: Mapping[str, Any]) -> None:
        """A call that the provider ran itself, with its result right behind it when it is there."""
        if not self._same:
            return
        call = self._metadata(part, "callProviderMetadata")
        result = self._metadata(part, "resultProviderMetadata")
        elsewhere = call.own.get("resultOf")
        known_id = elsewhere or call.own.get("callId")
        call_id = known_id if isinstance(known_id, str) else part["toolCallId"]
        name = tool_name(part)
        if elsewhere is None:
            self.parts.append(NativeToolCallPart(name, _arguments(part), call_id, id=call.id, **_known(call)))
        if part.get("state") == "output-available":
            self.parts.append(NativeToolReturnPart(name, part.get("output"), call_id, **_known(result)))
        elif part.get("state") == "output-error":
            content = result.own.get("content", part.get("errorText"))
            outcome: Literal["denied", "failed"] = "denied" if result.own.get("outcome") == "denied" else "failed"
            self.parts.append(NativeToolReturnPart(name, content, call_id, outcome=outcome, **_known(result)))

    def _text(self, part: Mapping[str, Any], metadata: PartMetadata) -> None:
        text = part.get("text")
        if not isinstance(text, str) or not self._same:
            metadata = PartMetadata()
        # Anthropic refuses text without a letter; what carries an id or a signature belongs to something else.
        if isinstance(text, str) and (text.strip() or metadata.id or metadata.details):
            citations = read_citations(part.get("citations"), text) if self._same else None
            self.parts.append(TextPart(text, id=metadata.id, citations=citations, **_known(metadata)))

    def _reasoning(self, part: Mapping[str, Any], metadata: PartMetadata) -> None:
        text = part.get("text")
        text = text if isinstance(text, str) else ""
        if text or metadata.signature or metadata.details:
            self.parts.append(ThinkingPart(text, id=metadata.id, signature=metadata.signature, **_known(metadata)))

    async def _file(self, part: Mapping[str, Any], metadata: PartMetadata, attachments: Attachments) -> None:
        """A generated file goes back as bytes; one that cannot be read is left out."""
        content = await attachments.generated(part, metadata.own.get("fileId"))
        if isinstance(content, BinaryContent):
            known = metadata if self._same else PartMetadata()
            self.parts.append(FilePart(BinaryContent.narrow_type(content), id=known.id, **_known(known)))

    def _metadata(self, part: Mapping[str, Any], *keys: str) -> PartMetadata:
        for key in keys:
            if self._same and (metadata := read_metadata(part.get(key))) != PartMetadata():
                return metadata
        return PartMetadata()


def _known(metadata: PartMetadata) -> dict[str, Any]:
    return {"provider_name": metadata.provider, "provider_details": metadata.details}


def _arguments(part: Mapping[str, Any]) -> dict[str, Any] | str:
    """An object as it is. Text that the model wrote and that was no object goes back as that text."""
    value = part.get("input", part.get("rawInput"))
    if isinstance(value, dict | str):
        return value
    return {} if value is None else orjson.dumps(value).decode()
