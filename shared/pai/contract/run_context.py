"""What instructions and hooks are given: the run as it stands, and what they may add to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pai.contract.signature import Context
from pai.protocol.identity import Identity
from pai.protocol.requests import PendingActionRef

Relation = Literal["context", "output"]
Visibility = Literal["all", "ui", "model", "none"]
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedMessage:
    """A lifecycle message: `context` comes before the model's answer, `output` after it."""

    parts: Sequence[Mapping[str, Any]]
    role: Role
    relation: Relation
    visibility: Visibility
    metadata: Mapping[str, Any] | None


@dataclass(slots=True, kw_only=True)
class RunContext(Context):
    """One run, seen by instructions, hooks and title functions.

    `step` is the number of the next model step, from 1. `messages` is the stored history, oldest first. What
    `add_message` and `update_metadata` collect is stored by the step that ran the hook, or not at all when it dies.
    """

    thread_id: str
    run_id: str
    agent: str
    identity: Identity
    client_data: Any = None
    step: int = 1
    messages: Sequence[Mapping[str, Any]] = ()
    thread_metadata: Mapping[str, Any] = field(default_factory=dict)
    run_metadata: Mapping[str, Any] = field(default_factory=dict)
    private_thread_metadata: Mapping[str, Any] = field(default_factory=dict)
    private_run_metadata: Mapping[str, Any] = field(default_factory=dict)
    added_messages: list[AddedMessage] = field(default_factory=list)
    metadata_changes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_message(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        role: Role = "system",
        relation: Relation = "context",
        visibility: Visibility = "all",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a lifecycle message: text, or UIMessage parts."""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        self.added_messages.append(
            AddedMessage(parts=parts, role=role, relation=relation, visibility=visibility, metadata=metadata)
        )

    def update_metadata(
        self,
        *,
        thread: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        private_thread: Mapping[str, Any] | None = None,
        private_run: Mapping[str, Any] | None = None,
    ) -> None:
        """Merge keys into metadata; each record is checked against its declared type when it is stored."""
        given = {"thread": thread, "run": run, "private_thread": private_thread, "private_run": private_run}
        for name, changes in given.items():
            if changes is not None:
                self.metadata_changes.setdefault(name, {}).update(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPreparation:
    """What `prepare_step` changes for one model step; None leaves it as declared.

    `tools` names the tools that are offered, `messages` replaces the history that the model sees.
    """

    instructions: str | None = None
    tools: Sequence[str] | None = None
    model: Any = None
    messages: Sequence[Mapping[str, Any]] | None = None
    model_settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended, for `on_run_finish`: completed, failed or cancelled."""

    status: Literal["completed", "failed", "cancelled"]
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAction:
    """What waits for somebody, for `on_action_pending`: its name, the exact reference, and what people are shown."""

    name: str
    ref: PendingActionRef
    input: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTask:
    """A small job for a model, such as a title: `model` as of an agent, and what to do with the text it is given."""

    model: Any
    instructions: str
    model_settings: Mapping[str, Any] | None = None
