"""Every chunk of the UI message stream, and the check of a chunk that came from somewhere else.

The shapes are those of AI SDK 7.0.173. Objects are loose: unknown keys pass. An optional key may be absent but is never
null; a key of any type (`input`, `output`, `data`, `messageMetadata` of `message-metadata`) must be present and may be
null. Values stay plain dicts with the wire's keys.
"""

from collections.abc import Callable
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from pai.protocol.content_chunks import (
    AbortChunk,
    Citation,
    CustomChunk,
    DataChunk,
    DocumentCitationSource,
    ErrorChunk,
    FileChunk,
    FinishChunk,
    FinishReason,
    FinishStepChunk,
    MessageMetadataChunk,
    ProviderMetadata,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningFileChunk,
    ReasoningStartChunk,
    ResetStepChunk,
    SourceDocumentChunk,
    SourceUrlChunk,
    StartChunk,
    StartStepChunk,
    SteeringFile,
    SteeringMessageChunk,
    SteeringText,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolMetadata,
    UrlCitationSource,
)
from pai.protocol.errors import FieldError, ValidationFailed
from pai.protocol.field_errors import field_message
from pai.protocol.tool_chunks import (
    ToolApprovalRequestChunk,
    ToolApprovalResponseChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)

__all__ = [
    "AbortChunk",
    "Chunk",
    "ChunkInvalid",
    "Citation",
    "CustomChunk",
    "DataChunk",
    "DocumentCitationSource",
    "ErrorChunk",
    "FileChunk",
    "FinishChunk",
    "FinishReason",
    "FinishStepChunk",
    "MessageMetadataChunk",
    "ProviderMetadata",
    "ReasoningDeltaChunk",
    "ReasoningEndChunk",
    "ReasoningFileChunk",
    "ReasoningStartChunk",
    "ResetStepChunk",
    "SourceDocumentChunk",
    "SourceUrlChunk",
    "StartChunk",
    "StartStepChunk",
    "SteeringFile",
    "SteeringMessageChunk",
    "SteeringText",
    "TextDeltaChunk",
    "TextEndChunk",
    "TextStartChunk",
    "ToolApprovalRequestChunk",
    "ToolApprovalResponseChunk",
    "ToolInputAvailableChunk",
    "ToolInputDeltaChunk",
    "ToolInputErrorChunk",
    "ToolInputStartChunk",
    "ToolMetadata",
    "ToolOutputAvailableChunk",
    "ToolOutputDeniedChunk",
    "ToolOutputErrorChunk",
    "UrlCitationSource",
    "validate_chunk",
]

Chunk = (
    StartChunk
    | FinishChunk
    | AbortChunk
    | ErrorChunk
    | MessageMetadataChunk
    | StartStepChunk
    | FinishStepChunk
    | ResetStepChunk
    | TextStartChunk
    | TextDeltaChunk
    | TextEndChunk
    | ReasoningStartChunk
    | ReasoningDeltaChunk
    | ReasoningEndChunk
    | FileChunk
    | ReasoningFileChunk
    | SourceUrlChunk
    | SourceDocumentChunk
    | CustomChunk
    | SteeringMessageChunk
    | DataChunk
    | ToolInputStartChunk
    | ToolInputDeltaChunk
    | ToolInputAvailableChunk
    | ToolInputErrorChunk
    | ToolApprovalRequestChunk
    | ToolApprovalResponseChunk
    | ToolOutputAvailableChunk
    | ToolOutputErrorChunk
    | ToolOutputDeniedChunk
)
"""One chunk as a typed dict; `data-*` chunks are those whose type starts with `data-`."""


class ChunkInvalid(ValidationFailed, ValueError):
    """A value that is no chunk. `path` is dotted, and empty for the chunk itself."""

    title = "The chunk is not valid"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message, errors=[FieldError(path=path, message=message)])
        self.path = path
        self.message = message


_DATA = "data-"
# The bare method of the validator: this is called for every chunk.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    kind: TypeAdapter(shape).validator.validate_python
    for kind, shape in {
        "start": StartChunk,
        "finish": FinishChunk,
        "abort": AbortChunk,
        "error": ErrorChunk,
        "message-metadata": MessageMetadataChunk,
        "start-step": StartStepChunk,
        "finish-step": FinishStepChunk,
        "reset-step": ResetStepChunk,
        "text-start": TextStartChunk,
        "text-delta": TextDeltaChunk,
        "text-end": TextEndChunk,
        "reasoning-start": ReasoningStartChunk,
        "reasoning-delta": ReasoningDeltaChunk,
        "reasoning-end": ReasoningEndChunk,
        "file": FileChunk,
        "reasoning-file": ReasoningFileChunk,
        "source-url": SourceUrlChunk,
        "source-document": SourceDocumentChunk,
        "custom": CustomChunk,
        "steering-message": SteeringMessageChunk,
        _DATA: DataChunk,
        "tool-input-start": ToolInputStartChunk,
        "tool-input-delta": ToolInputDeltaChunk,
        "tool-input-available": ToolInputAvailableChunk,
        "tool-input-error": ToolInputErrorChunk,
        "tool-approval-request": ToolApprovalRequestChunk,
        "tool-approval-response": ToolApprovalResponseChunk,
        "tool-output-available": ToolOutputAvailableChunk,
        "tool-output-error": ToolOutputErrorChunk,
        "tool-output-denied": ToolOutputDeniedChunk,
    }.items()
}


def validate_chunk(value: Any) -> Chunk:
    """The chunk as a plain dict: unknown keys kept, those inside `citations` dropped. Raises ChunkInvalid."""
    if not isinstance(value, dict):
        raise ChunkInvalid("", "a chunk is an object")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise ChunkInvalid("type", "a chunk has a type")
    check = _CHECKS.get(_DATA if kind.startswith(_DATA) else kind)
    if check is None:
        raise ChunkInvalid("type", f"unknown chunk type {kind[:100]!r}")
    try:
        return cast(Chunk, check(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(key) for key in first["loc"])
        raise ChunkInvalid(path, field_message(first)) from None
