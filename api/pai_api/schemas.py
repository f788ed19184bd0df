"""What the OpenAPI document says about bodies that the tier sends without building a model of them."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from pai.protocol.chunks import Chunk
from pai.protocol.events import ThreadHeadEvent, WatchEvent
from pai.protocol.state import (
    MessageDiagnosticsRecord,
)
from pai.protocol.usage import UsageSummary
from pai.protocol.wire import WireModel


class AgentEntry(WireModel):
    agent: str
    title: str | None = None
    description: str | None = None


class AgentList(WireModel):
    agents: list[AgentEntry]


class WatchToken(WireModel):
    """What opens one watch in the place of credentials, until `expiresAt`."""

    token: str
    expires_at: str


class ProtocolVersion(WireModel):
    version: Literal[1]
    chunks: str


class ManifestSuspension(WireModel):
    name: str
    input_schema: dict[str, Any]
    resume_schema: dict[str, Any]


class ManifestToolData(WireModel):
    name: str
    # `schema` is a method of pydantic's base class, so that the attribute has another name.
    data_schema: dict[str, Any] = Field(alias="schema")
    client_writable: bool


class ManifestTool(WireModel):
    name: str
    kind: Literal["server", "client", "external"]
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    suspensions: list[ManifestSuspension]
    data: list[ManifestToolData]


class ManifestCommand(WireModel):
    name: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class Manifest(WireModel):
    """What an agent is, for clients. Every schema is JSON Schema; private ones never appear."""

    agent: str
    protocol: ProtocolVersion
    tools: list[ManifestTool]
    commands: list[ManifestCommand]
    ui_data: dict[str, dict[str, Any]]
    message_metadata: dict[str, Any] | None = None
    thread_metadata: dict[str, Any] | None = None
    run_metadata: dict[str, Any] | None = None
    client_data: dict[str, Any] | None = None


class PaiMessageFacts(WireModel):
    """Where a message comes from. `runId` and `relation` are absent for `admin`."""

    producer: Literal["send", "trigger", "model", "lifecycle", "admin"]
    run_id: str | None = None
    relation: Literal["input", "output", "context"] | None = None
    status: Literal["open", "committed"]
    created_at: str
    updated_at: str
    usage: UsageSummary | None = None
    diagnostics: MessageDiagnosticsRecord | None = None


class MessageMetadata(WireModel):
    """The application's fields at the top level, and PAI's facts."""

    model_config = ConfigDict(extra="allow")

    pai: PaiMessageFacts


class MessagePart(WireModel):
    """An AI SDK UIMessagePart, told apart by `type`: `text`, `reasoning`, `file`, `source-url`, `tool-*`, `data-*`."""

    model_config = ConfigDict(extra="allow")

    type: str


class TransportMessage(WireModel):
    """An AI SDK UIMessage."""

    id: str
    role: Literal["system", "user", "assistant"]
    metadata: MessageMetadata
    parts: list[MessagePart]


class MessageChange(TransportMessage):
    """A whole message with what its fold needs to go on; or, without `parts`, its facts only."""

    folding: dict[str, Any] | None = None


class MessageFactsChange(WireModel):
    id: str
    metadata: MessageMetadata


class PartHealth(WireModel):
    sql: Literal["ok", "unreachable"]
    redis: Literal["ok", "unreachable"]


class Readiness(WireModel):
    status: Literal["ok", "unavailable"]
    parts: PartHealth


class Liveness(WireModel):
    status: Literal["ok"]


NAMED: dict[str, Any] = {
    "FileBytes": bytes,
    "Metrics": str,
    "UIMessageChunk": Chunk,
    "WatchEvent": WatchEvent,
    "ThreadHeadEvent": ThreadHeadEvent,
    "TransportMessage": TransportMessage,
    "MessageChange": MessageChange,
    "MessageFactsChange": MessageFactsChange,
}
"""Schemas that no record class of the same name stands for, or that only `REFINED` refers to."""

REFINED: dict[str, list[str]] = {
    "TransportState.messages[]": ["TransportMessage"],
    "QueuedItem.messages[]": ["TransportMessage"],
    "ChunkEvent.chunk": ["UIMessageChunk"],
    "SnapshotEvent.state": ["TransportState"],
    "HeadEvent.summary": ["ThreadSummary"],
    "Changes.thread": ["PaiThreadHead"],
    "Changes.messages[]": ["MessageChange", "MessageFactsChange"],
    "Changes.runs[]": ["RunState"],
    "Changes.queue": ["QueueState"],
    "Changes.usage": ["UsageSummary"],
    "Changes.capabilities": ["CapabilityState"],
}
"""Plain JSON on the hot path that has a shape all the same."""
