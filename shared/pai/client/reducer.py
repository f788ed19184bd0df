"""From the transport's state and events to the one state that a handle shows.

What is held is never older than what was shown: an event or a snapshot either brings it forward, or changes nothing, or
asks for a repair. The held position is a pair: `sequence` counts events, `revision` counts transactions. A snapshot may
know more transactions than the events that were published so far, so both must not go back.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import ValidationError

from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage
from pai.client.records import PaiThreadHead, RunState
from pai.client.transcript import Transcript
from pai.client.transport import Position
from pai.fold.errors import FoldError
from pai.protocol.events import ChunkEvent, ThreadEvent, UpdateEvent
from pai.protocol.state import CapabilityState, QueueState, ThreadErrorRecord, TransportState
from pai.protocol.state import PaiThreadHead as WireThreadHead
from pai.protocol.state import RunState as WireRunState
from pai.protocol.usage import UsageSummary, empty_usage


class Verdict(StrEnum):
    """What an event did: `repair` means that only a snapshot can bring the state forward."""

    applied = "applied"
    skipped = "skipped"
    repair = "repair"
    deleted = "deleted"


class Adoption(StrEnum):
    """What a snapshot did: `current` is not newer than what is held; `stale` must be asked for again."""

    adopted = "adopted"
    current = "current"
    stale = "stale"


class Reducer:
    def __init__(self, thread_id: str, binding: Binding) -> None:
        self.thread_id = thread_id
        self._binding = binding
        self.loaded = False
        self.deleted_versions: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self.version: str | None = None
        self.sequence = 0
        self.revision = 0
        self.head = PaiThreadHead(thread_id=self.thread_id)
        self.active_run_id: str | None = None
        self.queue = QueueState()
        self.usage: UsageSummary = empty_usage()
        self.capabilities = CapabilityState()
        self.error: ThreadErrorRecord | None = None
        self._transcript = Transcript(self._binding)
        self._runs: dict[str, _Run] = {}
        self._shown_runs: tuple[RunState, ...] | None = ()

    @property
    def position(self) -> Position | None:
        return None if self.version is None else Position(self.version, self.sequence)

    @property
    def messages(self) -> tuple[PaiCanonicalMessage, ...]:
        return self._transcript.views()

    def has_message(self, message_id: str) -> bool:
        return message_id in self._transcript

    def message(self, message_id: str) -> PaiCanonicalMessage | None:
        return self._transcript.view(message_id)

    @property
    def runs(self) -> tuple[RunState, ...]:
        if self._shown_runs is None:
            self._shown_runs = tuple(run.shown for run in self._runs.values())
        return self._shown_runs

    def run(self, run_id: str) -> RunState | None:
        run = self._runs.get(run_id)
        return None if run is None else run.shown

    def holds(self, version: str, revision: int) -> bool:
        """Whether the state is at least as new as that transaction, or will never be because its thread is gone."""
        return version in self.deleted_versions or (self.version == version and self.revision >= revision)

    def apply(self, event: ThreadEvent) -> Verdict:
        version = event["version"]
        if version in self.deleted_versions:
            return Verdict.skipped
        if event["type"] == "deleted":
            return self._deleted(version)
        if self.version is None and event["type"] == "update" and event["revision"] == 1:
            # The first transaction of a new incarnation says everything there is.
            self.version, self.sequence = version, event["sequence"] - 1
            self.loaded = True
        if version != self.version:
            return Verdict.repair
        if event["type"] == "reset":
            return Verdict.repair
        if event["sequence"] <= self.sequence:
            return Verdict.skipped
        if event["sequence"] != self.sequence + 1:
            return Verdict.repair
        revision = event.get("revision")
        if revision is not None:
            if revision <= self.revision:
                self.sequence = event["sequence"]
                return Verdict.skipped
            if revision != self.revision + 1:
                return Verdict.repair
        try:
            if event["type"] == "chunk":
                self._chunk(event)
            else:
                self._update(event)
        except (FoldError, ValidationError, KeyError, TypeError, AttributeError):
            return Verdict.repair
        self.sequence = event["sequence"]
        return Verdict.applied

    def adopt(
        self, state: TransportState | None, *, asked_with: str | None, needed: int = 0, force: bool = False
    ) -> Adoption:
        """Take a snapshot, unless it is older than what is held.

        `asked_with`: the version that was held when it was asked for: an answer says nothing about a version that was
        only heard of later.
        `needed`: the sequence that a repair must reach. `force`: it was asked for often enough, and the log seems to
        have been lost together with what only the log knew.
        """
        version = None if state is None else state.thread.version
        if state is None or version is None:
            return self._adopt_missing(asked_with)
        if version in self.deleted_versions:
            return Adoption.current
        if self.version is not None and version != self.version and asked_with != self.version:
            return Adoption.stale
        if version == self.version:
            if state.revision <= self.revision and state.sequence <= self.sequence and needed <= self.sequence:
                return Adoption.current
            forward = state.revision >= self.revision and state.sequence >= max(self.sequence, needed)
            same = state.revision == self.revision and self._transcript.says(state.messages)
            if not (forward or same or (force and state.revision >= self.revision)):
                return Adoption.stale
        if version != self.version:
            self._clear()
        self._take(state)
        return Adoption.adopted

    def _adopt_missing(self, asked_with: str | None) -> Adoption:
        if self.version is None:
            self.loaded = True
            return Adoption.current
        if asked_with != self.version:
            return Adoption.stale
        self._deleted(self.version)
        return Adoption.adopted

    def _deleted(self, version: str) -> Verdict:
        self.deleted_versions.add(version)
        if version != self.version:
            return Verdict.skipped
        self._clear()
        self.loaded = True
        return Verdict.deleted

    def _take(self, state: TransportState) -> None:
        self.version = state.thread.version
        self.sequence, self.revision = state.sequence, state.revision
        self.loaded = True
        self.head = self._binding.head(state.thread)
        self.active_run_id, self.error = state.active_run_id, state.error
        self.queue, self.usage, self.capabilities = state.queue, state.usage, state.capabilities
        self._transcript.replace(state.messages, state.folding)
        known, self._runs, self._shown_runs = self._runs, {}, None
        for run in state.runs:
            held = known.get(run.run_id)
            self._runs[run.run_id] = held if held is not None and held.wire == run else self._run(run)

    def _chunk(self, event: ChunkEvent) -> None:
        self._transcript.apply(event["messageId"], event["chunk"])

    def _update(self, event: UpdateEvent) -> None:
        """Reads everything before it changes anything."""
        changes = event["changes"]
        read: dict[str, Any] = {}
        if "thread" in changes:
            read["head"] = self._binding.head(WireThreadHead.read(changes["thread"]))
        if "queue" in changes:
            read["queue"] = QueueState.read(changes["queue"])
        if "usage" in changes:
            read["usage"] = UsageSummary.read(changes["usage"])
        if "capabilities" in changes:
            read["capabilities"] = CapabilityState.read(changes["capabilities"])
        if "error" in changes:
            read["error"] = None if changes["error"] is None else ThreadErrorRecord.read(changes["error"])
        if "activeRunId" in changes:
            read["active_run_id"] = changes["activeRunId"]
        runs = [self._run(WireRunState.read(run)) for run in changes.get("runs", ())]
        self._transcript.check(changes.get("messages", ()))
        for record in changes.get("messages", ()):
            self._transcript.put(record)
        self._transcript.remove(changes.get("removedMessageIds", ()))
        for run in runs:
            self._runs[run.wire.run_id] = run
        for run_id in changes.get("removedRunIds", ()):
            self._runs.pop(run_id, None)
        self._shown_runs = None
        for name, value in read.items():
            setattr(self, name, value)
        self.revision = event["revision"]

    def _run(self, wire: WireRunState) -> "_Run":
        return _Run(wire, self._binding.run(wire))


class _Run(NamedTuple):
    """`shown` is `wire` with its metadata read as the contract declares it."""

    wire: WireRunState
    shown: RunState
