"""Requests and records of the surface that only trusted callers reach."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pai.protocol.requests import Id
from pai.protocol.wire import WireModel

Visibility = Literal["all", "ui", "model", "none"]
"""Who sees a message."""

MAX_MESSAGES = 100
"""Messages that one request may name."""


class _Input(WireModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LifecycleMessage(WireModel):
    """A canonical message with what only trusted code sees of it. `parts` holds the reserved ones, too."""

    id: str
    role: Literal["system", "user", "assistant"]
    metadata: dict[str, Any]
    parts: list[dict[str, Any]]
    visibility: Visibility
    private_metadata: dict[str, Any]


class LifecycleMessages(WireModel):
    """In the order in which they were asked for; what does not exist is left out."""

    messages: list[LifecycleMessage]


class AdminMessageInput(_Input):
    """Complete UIMessage parts: nothing is streamed into them later, and every tool call in them has its result."""

    role: Literal["system", "user", "assistant"]
    parts: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]
    metadata: dict[str, Any] | None = None


class AppendMessageRequest(_Input):
    message: AdminMessageInput
    message_id: Id | None = None
    visibility: Visibility = "all"
    private_metadata: dict[str, Any] | None = None


class LookUpMessagesRequest(_Input):
    message_ids: Annotated[list[Id], Field(max_length=MAX_MESSAGES)]


class VisibilityRequest(_Input):
    message_ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_MESSAGES)]
    visibility: Visibility


class MetadataRequest(_Input):
    """Keys to set; the others stay as they are."""

    metadata: dict[str, Any] | None = None
    private_metadata: dict[str, Any] | None = None


class MetadataRecord(WireModel):
    """The metadata of a thread or of a run, as of a revision of the thread."""

    metadata: dict[str, Any]
    private_metadata: dict[str, Any]
    version: str
    revision: int
