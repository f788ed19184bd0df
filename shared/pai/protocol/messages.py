"""Stored messages, and the check of messages that came from somewhere else."""

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from pai.protocol.content_chunks import STRIPPED
from pai.protocol.errors import FieldError, ValidationFailed
from pai.protocol.field_errors import field_message
from pai.protocol.parts import (
    CustomPart,
    DataPart,
    FilePart,
    ReasoningFilePart,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    SteeringMessagePart,
    StepStartPart,
    TextPart,
)
from pai.protocol.tool_parts import DynamicToolPart, StaticToolPart

Role = Literal["system", "user", "assistant"]
Part = (
    TextPart
    | ReasoningPart
    | FilePart
    | ReasoningFilePart
    | SourceUrlPart
    | SourceDocumentPart
    | CustomPart
    | SteeringMessagePart
    | StepStartPart
    | DataPart
    | StaticToolPart
    | DynamicToolPart
)


class MessagesInvalid(ValidationFailed, ValueError):
    """Messages that are none. `path` is dotted: `0.parts.2.state`."""

    title = "The messages are not valid"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message, errors=[FieldError(path=path, message=message)])
        self.path = path
        self.message = message


def _kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return None
    return next((prefix for prefix in ("data-", "tool-") if kind.startswith(prefix)), kind)


_AnyPart = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ReasoningPart, Tag("reasoning")]
    | Annotated[FilePart, Tag("file")]
    | Annotated[ReasoningFilePart, Tag("reasoning-file")]
    | Annotated[SourceUrlPart, Tag("source-url")]
    | Annotated[SourceDocumentPart, Tag("source-document")]
    | Annotated[CustomPart, Tag("custom")]
    | Annotated[SteeringMessagePart, Tag("steering-message")]
    | Annotated[StepStartPart, Tag("step-start")]
    | Annotated[DataPart, Tag("data-")]
    | Annotated[StaticToolPart, Discriminator("state"), Tag("tool-")]
    | Annotated[DynamicToolPart, Discriminator("state"), Tag("dynamic-tool")],
    Discriminator(_kind, custom_error_type="part_type", custom_error_message="unknown part type"),
]


@with_config(STRIPPED)
class UIMessage(TypedDict):
    id: str
    role: Role
    metadata: NotRequired[Any]
    parts: list[_AnyPart]


def _has_parts(message: UIMessage) -> UIMessage:
    if message["role"] != "assistant" and not message["parts"]:
        raise ValueError("a message needs at least one part")
    return message


_MESSAGES: TypeAdapter[list[UIMessage]] = TypeAdapter(
    Annotated[list[Annotated[UIMessage, AfterValidator(_has_parts)]], Field(min_length=1, fail_fast=True)]
)


def validate_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages as new plain dicts without the keys that nobody declared. Raises MessagesInvalid."""
    try:
        return cast(list[dict[str, Any]], _MESSAGES.validate_python(messages, strict=True))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise MessagesInvalid(_path(first["loc"]), field_message(first)) from None


def _path(location: tuple[int | str, ...]) -> str:
    """The location without the names of the union members, which the validator puts after each index of `parts`."""
    if len(location) < 4:
        return ".".join(str(key) for key in location)
    index, parts, part, kind, *rest = location
    if kind in ("tool-", "dynamic-tool"):
        rest = rest[1:]
    return ".".join(str(key) for key in (index, parts, part, *rest))
