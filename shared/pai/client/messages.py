"""The one message type that consumers see: canonical messages of the server, and inputs that wait for admission."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypeIs

from pai.client.binding import Binding
from pai.client.facts import PaiMessageFacts, PendingFacts, read_facts
from pai.client.part_types import view_parts
from pai.client.parts import Json, Part

Role = Literal["system", "user", "assistant"]
_FACTS = "pai"


class MessageMetadata(Mapping[str, Any]):
    """The application's fields at the top level, and PAI's facts under `pai`.

    `metadata["topic"]` reads the JSON. `fields` is the declared model on a bound client, else that JSON; its attributes
    are this object's too: `metadata.topic`.
    """

    __slots__ = ("_binding", "_facts", "_fields", "raw")

    def __init__(self, raw: Json, binding: Binding) -> None:
        self.raw = raw
        self._binding = binding
        self._facts: PaiMessageFacts | None = None
        self._fields: Any = None

    @property
    def pai(self) -> PaiMessageFacts:
        if self._facts is None:
            self._facts = read_facts(self.raw.get(_FACTS))
        return self._facts

    @property
    def fields(self) -> Any:
        if self._fields is None:
            application = {key: value for key, value in self.raw.items() if key != _FACTS}
            self._fields = self._binding.message_metadata(application)
        return self._fields

    def __getattr__(self, name: str) -> Any:
        fields = self.fields
        if isinstance(fields, dict):
            raise AttributeError(f"the message's metadata has no attribute {name!r}; read JSON with [{name!r}]")
        return getattr(fields, name)

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"MessageMetadata({self.raw!r})"


class PendingMetadata(Mapping[str, Any]):
    """The sparse metadata that the send was given; defaults appear with the canonical message."""

    __slots__ = ("pai", "raw")

    def __init__(self, raw: Json, facts: PendingFacts) -> None:
        self.raw = raw
        self.pai = facts

    @property
    def fields(self) -> Json:
        return self.raw

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"PendingMetadata({self.raw!r})"


class PaiCanonicalMessage:
    """A message of the server. Objects are values: a change makes new ones, which share what did not change.

    `raw` is the projected JSON; never change it.
    """

    __slots__ = ("id", "metadata", "parts", "raw", "role")

    def __init__(self, raw: Json, binding: Binding, previous: "PaiCanonicalMessage | None" = None) -> None:
        metadata = raw.get("metadata") or {}
        self.raw = raw
        self.id: str = raw["id"]
        self.role: Role = raw["role"]
        self.metadata: MessageMetadata
        if previous is not None and (previous.metadata.raw is metadata or previous.metadata.raw == metadata):
            self.metadata = previous.metadata
        else:
            self.metadata = MessageMetadata(metadata, binding)
        self.parts: tuple[Part, ...] = view_parts(raw["parts"], binding, () if previous is None else previous.parts)

    @property
    def text(self) -> str:
        """All text parts together."""
        return _text(self.parts)

    def __repr__(self) -> str:
        return f"PaiCanonicalMessage({self.role} {self.id!r}, {len(self.parts)} parts)"


class PaiPendingInputMessage:
    """An optimistic input of this client. The canonical message with the same id takes its place."""

    __slots__ = ("id", "metadata", "parts", "role")

    def __init__(self, message_id: str, parts: Sequence[Part], metadata: PendingMetadata) -> None:
        self.id = message_id
        self.role: Role = "user"
        self.parts: tuple[Part, ...] = tuple(parts)
        self.metadata = metadata

    @property
    def text(self) -> str:
        return _text(self.parts)

    def __repr__(self) -> str:
        return f"PaiPendingInputMessage({self.id!r})"


PaiMessage = PaiCanonicalMessage | PaiPendingInputMessage
PaiQueuedMessage = PaiCanonicalMessage
"""A queued input has the shape that it will have when it is admitted."""


def is_optimistic_input_message(message: PaiMessage) -> TypeIs[PaiPendingInputMessage]:
    """True: declared metadata may still be absent. False: the metadata is complete."""
    return isinstance(message, PaiPendingInputMessage)


def _text(parts: Sequence[Part]) -> str:
    return "".join(part.raw["text"] for part in parts if part.raw.get("type") == "text")
