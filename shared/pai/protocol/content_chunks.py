"""The chunks that are not about tools: message and step borders, text, reasoning, files, sources and data.

Values stay plain dicts with the wire's keys; the typed dicts say which. Their rules are in `pai.protocol.chunks`.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Discriminator, with_config
from typing_extensions import TypedDict

ProviderMetadata = dict[str, dict[str, Any]]
ToolMetadata = dict[str, Any]
FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "interrupted"]

LOOSE = ConfigDict(extra="allow", strict=True)
STRIPPED = ConfigDict(extra="ignore", strict=True)


def _index(value: float) -> float:
    if not (0 <= value <= 2**53 - 1 and value == int(value)):
        raise ValueError("must be a whole number that is not negative")
    return value


Index = Annotated[int | float, AfterValidator(_index)]


@with_config(STRIPPED)
class UrlCitationSource(TypedDict):
    type: Literal["source"]
    sourceType: Literal["url"]
    id: str
    url: str
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class DocumentCitationSource(TypedDict):
    type: Literal["source"]
    sourceType: Literal["document"]
    id: str
    mediaType: str
    title: str
    filename: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(STRIPPED)
class Citation(TypedDict):
    """The one place where unknown keys are dropped instead of kept."""

    source: Annotated[UrlCitationSource | DocumentCitationSource, Discriminator("sourceType")]
    startIndex: NotRequired[Index]
    endIndex: NotRequired[Index]
    citedText: NotRequired[str]


@with_config(LOOSE)
class StartChunk(TypedDict):
    type: Literal["start"]
    messageId: NotRequired[str]
    messageMetadata: NotRequired[Any]


@with_config(LOOSE)
class FinishChunk(TypedDict):
    type: Literal["finish"]
    finishReason: NotRequired[FinishReason]
    messageMetadata: NotRequired[Any]


@with_config(LOOSE)
class AbortChunk(TypedDict):
    type: Literal["abort"]
    reason: NotRequired[str]


@with_config(LOOSE)
class ErrorChunk(TypedDict):
    type: Literal["error"]
    errorText: str


@with_config(LOOSE)
class MessageMetadataChunk(TypedDict):
    type: Literal["message-metadata"]
    messageMetadata: Any


@with_config(LOOSE)
class StartStepChunk(TypedDict):
    type: Literal["start-step"]


@with_config(LOOSE)
class FinishStepChunk(TypedDict):
    type: Literal["finish-step"]


@with_config(LOOSE)
class ResetStepChunk(TypedDict):
    type: Literal["reset-step"]


@with_config(LOOSE)
class TextStartChunk(TypedDict):
    type: Literal["text-start"]
    id: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class TextDeltaChunk(TypedDict):
    type: Literal["text-delta"]
    id: str
    delta: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class TextEndChunk(TypedDict):
    type: Literal["text-end"]
    id: str
    providerMetadata: NotRequired[ProviderMetadata]
    citations: NotRequired[list[Citation]]


@with_config(LOOSE)
class ReasoningStartChunk(TypedDict):
    type: Literal["reasoning-start"]
    id: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class ReasoningDeltaChunk(TypedDict):
    type: Literal["reasoning-delta"]
    id: str
    delta: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class ReasoningEndChunk(TypedDict):
    type: Literal["reasoning-end"]
    id: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class FileChunk(TypedDict):
    type: Literal["file"]
    url: str
    mediaType: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class ReasoningFileChunk(TypedDict):
    type: Literal["reasoning-file"]
    url: str
    mediaType: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class SourceUrlChunk(TypedDict):
    type: Literal["source-url"]
    sourceId: str
    url: str
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class SourceDocumentChunk(TypedDict):
    type: Literal["source-document"]
    sourceId: str
    mediaType: str
    title: str
    filename: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class CustomChunk(TypedDict):
    type: Literal["custom"]
    kind: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class SteeringText(TypedDict):
    type: Literal["text"]
    text: str
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class SteeringFile(TypedDict):
    type: Literal["file"]
    mediaType: str
    url: str
    filename: NotRequired[str]
    providerReference: NotRequired[dict[str, str]]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class SteeringMessageChunk(TypedDict):
    type: Literal["steering-message"]
    id: str
    parts: list[Annotated[SteeringText | SteeringFile, Discriminator("type")]]


@with_config(LOOSE)
class DataChunk(TypedDict):
    """`type` is `data-` and the application's name; `transient` data is handed over and never stored."""

    type: str
    data: Any
    id: NotRequired[str]
    transient: NotRequired[bool]
