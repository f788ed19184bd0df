"""Where a message comes from and how far it is: `message.metadata.pai`."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from pai.protocol.errors import TransportError
from pai.protocol.state import MessageDiagnosticsRecord
from pai.protocol.usage import UsageSummary
from pai.protocol.wire import WireModel


class _Facts(WireModel):
    """Times are ISO 8601."""

    created_at: str
    updated_at: str


class InputFacts(_Facts):
    """What a person or a trigger said to a run."""

    producer: Literal["send", "trigger"]
    run_id: str
    relation: Literal["input"]
    status: Literal["committed"]


class ModelFacts(_Facts):
    """One model step. It is `open` until every call in it is settled."""

    producer: Literal["model"]
    run_id: str
    relation: Literal["output"]
    status: Literal["open", "committed"]
    usage: UsageSummary | None = None
    diagnostics: MessageDiagnosticsRecord | None = None


class LifecycleFacts(_Facts):
    """Added by a hook of the agent."""

    producer: Literal["lifecycle"]
    run_id: str
    relation: Literal["context", "output"]
    status: Literal["committed"]


class AdminFacts(_Facts):
    """Added by a trusted caller; it belongs to no run."""

    producer: Literal["admin"]
    status: Literal["committed"]
    run_id: None = None
    relation: None = None


class PendingFacts(_Facts):
    """Only on this client: an input whose send was not admitted yet."""

    producer: Literal["send"] = "send"
    status: Literal["pending"] = "pending"
    run_id: None = None
    relation: None = None


PaiMessageFacts = InputFacts | ModelFacts | LifecycleFacts | AdminFacts

_BY_PRODUCER: Mapping[str, type[PaiMessageFacts]] = {
    "send": InputFacts,
    "trigger": InputFacts,
    "model": ModelFacts,
    "lifecycle": LifecycleFacts,
    "admin": AdminFacts,
}


def read_facts(data: Any) -> PaiMessageFacts:
    """Raises TransportError for facts of a protocol that this client does not know."""
    try:
        return _BY_PRODUCER[data["producer"]].read(data)
    except (KeyError, TypeError, ValidationError) as error:
        raise TransportError(f"A message has facts that this client cannot read: {error}") from error
