"""The parts of a message as consumers see them: attributes over the JSON, made when somebody looks.

Standard AI SDK parts keep their native fields (`snake_case` here). What PAI knows besides is joined onto the part that
it belongs to. `part.raw` is the JSON itself; never change it, states share it.
"""

from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from typing_extensions import TypeIs

from pai.client.binding import Binding

Json = dict[str, Any]
T = TypeVar("T")


class Key(Generic[T]):
    """An attribute that reads one key of the part's JSON; `default` when it is absent."""

    __slots__ = ("_default", "_key")

    def __init__(self, key: str, default: T) -> None:
        self._key = key
        self._default = default

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...

    @overload
    def __get__(self, part: "Part", owner: type) -> T: ...

    def __get__(self, part: "Part | None", owner: type) -> T | Self:
        return self if part is None else part.raw.get(self._key, self._default)


def text(key: str) -> Key[str]:
    return Key(key, "")


def optional(key: str) -> Key[str | None]:
    return Key(key, None)


def record(key: str) -> Key[Json | None]:
    return Key(key, None)


class Part:
    """A part of a type that this client does not know is a plain `Part`."""

    __slots__ = ("_binding", "raw")

    def __init__(self, raw: Json, binding: Binding) -> None:
        self.raw = raw
        self._binding = binding

    @property
    def type(self) -> str:
        return str(self.raw["type"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


class TextPart(Part):
    __slots__ = ()
    text = text("text")
    state: Key[Literal["streaming", "done"] | None] = Key("state", None)
    citations: Key[list[Json] | None] = Key("citations", None)
    provider_metadata = record("providerMetadata")


class PaiReasoningPart(Part):
    """`summary` is the generated summary, when the agent asked for one."""

    __slots__ = ()
    text = text("text")
    id = optional("id")
    summary = optional("summary")
    state: Key[Literal["streaming", "done"] | None] = Key("state", None)
    provider_metadata = record("providerMetadata")


class SourceUrlPart(Part):
    __slots__ = ()
    source_id = text("sourceId")
    url = text("url")
    title = optional("title")
    provider_metadata = record("providerMetadata")


class SourceDocumentPart(Part):
    __slots__ = ()
    source_id = text("sourceId")
    media_type = text("mediaType")
    title = text("title")
    filename = optional("filename")
    provider_metadata = record("providerMetadata")


class FilePart(Part):
    __slots__ = ()
    media_type = text("mediaType")
    url = text("url")
    filename = optional("filename")
    provider_metadata = record("providerMetadata")
    provider_reference = record("providerReference")


class ReasoningFilePart(Part):
    __slots__ = ()
    media_type = text("mediaType")
    url = text("url")
    provider_metadata = record("providerMetadata")


class CustomPart(Part):
    __slots__ = ()
    kind = text("kind")
    provider_metadata = record("providerMetadata")


class SteeringMessagePart(Part):
    __slots__ = ()
    id = text("id")
    parts: Key[list[Json]] = Key("parts", [])


class StepStartPart(Part):
    __slots__ = ()


class PaiAttachmentPart(Part):
    """A reference to a file that PAI keeps; ask for a URL when it is rendered."""

    __slots__ = ()
    id = text("id")
    file_id = text("fileId")
    media_type = text("mediaType")
    filename = optional("filename")
    byte_size: Key[int | None] = Key("byteSize", None)
    metadata = record("metadata")


class PaiDataPart(Part):
    """Application data; `data` is the declared model on a bound client. `transient` data is in no message."""

    __slots__ = ("_data",)
    _data: Any
    id = optional("id")
    transient: Key[bool] = Key("transient", False)
    prefix: ClassVar[str] = "data-"

    @property
    def name(self) -> str:
        return self.type.removeprefix(self.prefix)

    @property
    def data(self) -> Any:
        try:
            return self._data
        except AttributeError:
            self._data = self._binding.data(self.name, self.raw.get("data"))
            return self._data


def is_pai_attachment_part(part: Part) -> TypeIs[PaiAttachmentPart]:
    return isinstance(part, PaiAttachmentPart)


def is_pai_data_part(part: Part) -> TypeIs[PaiDataPart]:
    """Application data; PAI's own data parts are never handed out."""
    return isinstance(part, PaiDataPart)
