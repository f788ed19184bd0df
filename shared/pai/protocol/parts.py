"""Every part of a stored message that is not a tool call, and how to tell parts apart."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Discriminator, with_config
from typing_extensions import TypedDict

from pai.protocol.content_chunks import STRIPPED, Citation, ProviderMetadata


@with_config(STRIPPED)
class TextPart(TypedDict):
    """It carries no id: the id of its chunks ends with it."""

    type: Literal["text"]
    text: str
    state: NotRequired[Literal["streaming", "done"]]
    providerMetadata: NotRequired[ProviderMetadata]
    citations: NotRequired[list[Citation]]


@with_config(STRIPPED)
class ReasoningPart(TypedDict):
    type: Literal["reasoning"]
    text: str
    id: NotRequired[str]
    state: NotRequired[Literal["streaming", "done"]]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class FilePart(TypedDict):
    type: Literal["file"]
    mediaType: str
    url: str
    filename: NotRequired[str]
    providerReference: NotRequired[dict[str, str]]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class ReasoningFilePart(TypedDict):
    type: Literal["reasoning-file"]
    mediaType: str
    url: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class SourceUrlPart(TypedDict):
    type: Literal["source-url"]
    sourceId: str
    url: str
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class SourceDocumentPart(TypedDict):
    type: Literal["source-document"]
    sourceId: str
    mediaType: str
    title: str
    filename: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class CustomPart(TypedDict):
    type: Literal["custom"]
    kind: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class SteeringTextPart(TypedDict):
    type: Literal["text"]
    text: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class SteeringFilePart(TypedDict):
    type: Literal["file"]
    mediaType: str
    url: str
    filename: NotRequired[str]
    providerReference: NotRequired[dict[str, str]]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class SteeringMessagePart(TypedDict):
    """A user message that reached a run in the middle of it."""

    type: Literal["steering-message"]
    id: str
    parts: list[Annotated[SteeringTextPart | SteeringFilePart, Discriminator("type")]]


@with_config(STRIPPED)
class StepStartPart(TypedDict):
    type: Literal["step-start"]


def _data_type(value: str) -> str:
    if not value.startswith("data-"):
        raise ValueError("must start with 'data-'")
    return value


@with_config(STRIPPED)
class DataPart(TypedDict):
    """Application data; those whose type starts with `data-pai-` are PAI's own."""

    type: Annotated[str, AfterValidator(_data_type)]
    data: Any
    id: NotRequired[str]


def is_tool_part(part: dict[str, Any]) -> bool:
    """A tool call, static (`tool-NAME`) or dynamic."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind == "dynamic-tool" or kind.startswith("tool-"))


def is_data_part(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind.startswith("data-")


def tool_name(part: dict[str, Any]) -> str:
    """The name of a tool part's tool: `toolName`, or all of the type after `tool-`."""
    if part["type"] == "dynamic-tool":
        return str(part["toolName"])
    return str(part["type"]).removeprefix("tool-")
