"""A thread as a server would keep it: every event it ever published, and the snapshot at any moment."""

import asyncio
import copy
from typing import Any

from pai.fold.folding import Fold
from pai.protocol.state import TransportState

AT = "2026-01-31T09:00:00.000Z"
START = 1 << 32


def input_facts(run_id: str) -> dict[str, Any]:
    return {
        "producer": "send",
        "runId": run_id,
        "relation": "input",
        "status": "committed",
        "createdAt": AT,
        "updatedAt": AT,
    }


def model_facts(run_id: str, status: str = "open") -> dict[str, Any]:
    return {
        "producer": "model",
        "runId": run_id,
        "relation": "output",
        "status": status,
        "createdAt": AT,
        "updatedAt": AT,
    }


def user_message(message_id: str, text: str, run_id: str = "run_1") -> dict[str, Any]:
    return {
        "id": message_id,
        "role": "user",
        "metadata": {"pai": input_facts(run_id)},
        "parts": [{"type": "text", "text": text}],
    }


def open_message(message_id: str, run_id: str = "run_1") -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "metadata": {"pai": model_facts(run_id)}, "parts": []}


def run_record(thread_id: str, run_id: str = "run_1", status: str = "running", **fields: Any) -> dict[str, Any]:
    record = {
        "threadId": thread_id,
        "runId": run_id,
        "inputMessageIds": ["in_1"],
        "initiator": "send",
        "admission": {"mode": "direct"},
        "usage": {"inputTokenDetails": {}, "outputTokenDetails": {}},
        "metadata": {},
        "createdAt": AT,
        "status": status,
    }
    if status != "queued":
        record["startedAt"] = AT
    if status in ("completed", "failed", "cancelled"):
        record["completedAt"] = AT
    return {**record, **fields}


class FakeThread:
    """`live` publishes a chunk of a model step, `commit` what one transaction did."""

    def __init__(self, thread_id: str = "t", version: str = "v1") -> None:
        self.thread_id = thread_id
        self.version = version
        self.sequence = START
        self.revision = 0
        self.events: list[dict[str, Any]] = []
        self.deleted = False
        self.published = asyncio.Event()
        self._messages: dict[str, dict[str, Any]] = {}
        self._folds: dict[str, Fold] = {}
        self._state: dict[str, Any] = {
            "thread": {"threadId": thread_id, "version": version, "status": "idle", "metadata": {}},
            "runs": [],
            "activeRunId": None,
            "queue": {"items": [], "canRecall": False},
            "usage": {"inputTokenDetails": {}, "outputTokenDetails": {}},
            "capabilities": {"canStop": False, "canRespondToActions": False},
            "error": None,
        }

    def live(self, message_id: str, *chunks: dict[str, Any], run_id: str = "run_1") -> None:
        for chunk in chunks:
            self._fold(message_id, chunk)
            self._publish({"type": "chunk", "runId": run_id, "messageId": message_id, "chunk": chunk})

    def commit(
        self, *, chunks: list[tuple[str, dict[str, Any]]] | None = None, lost: bool = False, **changes: Any
    ) -> None:
        """`lost`: the process died before it published."""
        self.revision += 1
        for message_id, chunk in chunks or []:
            self._fold(message_id, chunk)
            run_id = self._messages[message_id]["metadata"]["pai"]["runId"]
            self._publish(
                {
                    "type": "chunk",
                    "runId": run_id,
                    "messageId": message_id,
                    "revision": self.revision,
                    "chunk": chunk,
                },
                lost=lost,
            )
        self._take(changes)
        self._publish({"type": "update", "revision": self.revision, "changes": copy.deepcopy(changes)}, lost=lost)

    def begin(self, message_id: str = "out_1", run_id: str = "run_1", text: str = "hello") -> None:
        """The transaction that accepts a message and plans the model step."""
        self.commit(
            thread={"threadId": self.thread_id, "version": self.version, "status": "running", "metadata": {}},
            messages=[user_message(f"in_{run_id[4:]}", text, run_id), open_message(message_id, run_id)],
            runs=[run_record(self.thread_id, run_id, inputMessageIds=[f"in_{run_id[4:]}"])],
            activeRunId=run_id,
            capabilities={"canStop": True, "canRespondToActions": False},
        )

    def finish(self, message_id: str = "out_1", run_id: str = "run_1", status: str = "completed") -> None:
        """The transaction that closes the message and the run."""
        facts = {"messageMetadata": {"pai": {"status": "committed"}}}
        done = {"finishReason": "stop"} if status == "completed" else {}
        self.commit(
            chunks=[
                (message_id, {"type": "finish-step"}),
                (message_id, {"type": "finish", "finishReason": "stop", **facts}),
            ],
            thread={"threadId": self.thread_id, "version": self.version, "status": "idle", "metadata": {}},
            runs=[run_record(self.thread_id, run_id, status, inputMessageIds=[f"in_{run_id[4:]}"], **done)],
            activeRunId=None,
            capabilities={"canStop": False, "canRespondToActions": False},
        )

    def reset(self, *, jump: int = 0) -> None:
        self.sequence += jump
        self._publish({"type": "reset", "reason": "lost"})

    def delete(self) -> None:
        self.deleted = True
        self._publish({"type": "deleted"})

    def message(self, message_id: str) -> dict[str, Any]:
        fold = self._folds.get(message_id)
        return self._messages[message_id] if fold is None else fold.message

    def wire(self) -> dict[str, Any]:
        return copy.deepcopy(
            {
                **self._state,
                "messages": [self.message(message_id) for message_id in self._messages],
                "sequence": self.sequence,
                "revision": self.revision,
                "folding": {message_id: fold.folding() for message_id, fold in self._folds.items()},
            }
        )

    def snapshot(self) -> TransportState:
        return TransportState.read(self.wire())

    def after(self, sequence: int) -> list[dict[str, Any]]:
        return [event for event in self.events if event["sequence"] > sequence]

    def _fold(self, message_id: str, chunk: dict[str, Any]) -> None:
        if message_id not in self._folds:
            self._folds[message_id] = Fold(self._messages[message_id])
        self._folds[message_id].apply(chunk)

    def _take(self, changes: dict[str, Any]) -> None:
        for record in changes.get("messages", ()):
            if "parts" in record:
                self._messages[record["id"]] = copy.deepcopy(record)
                self._folds.pop(record["id"], None)
            else:
                self._messages[record["id"]] = {**self.message(record["id"]), "metadata": record["metadata"]}
                self._folds.pop(record["id"], None)
        for message_id in changes.get("removedMessageIds", ()):
            self._messages.pop(message_id, None)
            self._folds.pop(message_id, None)
        runs = {run["runId"]: run for run in self._state["runs"]}
        runs |= {run["runId"]: run for run in changes.get("runs", ())}
        for run_id in changes.get("removedRunIds", ()):
            runs.pop(run_id, None)
        self._state["runs"] = list(runs.values())
        for key in ("thread", "activeRunId", "queue", "usage", "capabilities", "error"):
            if key in changes:
                self._state[key] = changes[key]

    def _publish(self, event: dict[str, Any], *, lost: bool = False) -> None:
        if lost:
            return
        self.sequence += 1
        where = {"threadId": self.thread_id, "version": self.version, "sequence": self.sequence}
        self.events.append({**event, **where})
        self._wake()

    def become(self, other: "FakeThread") -> None:
        """All that happened to another thread with the same beginning happens to this one at once."""
        for name in ("sequence", "revision", "events", "_messages", "_folds", "_state"):
            setattr(self, name, getattr(other, name))
        self._wake()

    def _wake(self) -> None:
        published, self.published = self.published, asyncio.Event()
        published.set()


def long_answer(thread: FakeThread) -> None:
    """Two model steps with text, reasoning, a streamed tool input, tool data and an attempt that is thrown away."""
    thread.begin()
    thread.live(
        "out_1",
        {"type": "start", "messageId": "out_1", "messageMetadata": {"pai": {"status": "open"}}},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "half a th"},
    )
    thread.commit(chunks=[("out_1", {"type": "reset-step"})])
    thread.live(
        "out_1",
        {"type": "reasoning-start", "id": "r"},
        *({"type": "reasoning-delta", "id": "r", "delta": f"why {n} "} for n in range(3)),
        {"type": "reasoning-end", "id": "r"},
        {"type": "text-start", "id": "x"},
        *({"type": "text-delta", "id": "x", "delta": f"word{n} "} for n in range(6)),
        {"type": "text-end", "id": "x"},
        {"type": "tool-input-start", "toolCallId": "call_1", "toolName": "weather"},
        *(
            {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": piece}
            for piece in ('{"ci', 'ty": "Ber', 'lin"', "}")
        ),
        {"type": "tool-input-available", "toolCallId": "call_1", "toolName": "weather", "input": {"city": "Berlin"}},
    )
    thread.commit(runs=[run_record(thread.thread_id)])
    thread.commit(
        chunks=[
            (
                "out_1",
                {
                    "type": "data-pai-tool-data",
                    "id": "call_1:progress",
                    "data": {"toolCallId": "call_1", "name": "progress", "value": {"percent": 50}},
                },
            )
        ]
    )
    thread.commit(chunks=[("out_1", {"type": "data-chart", "id": "c", "data": {"points": [1, 2]}})])
    thread.commit(
        chunks=[
            ("out_1", {"type": "tool-output-available", "toolCallId": "call_1", "output": {"celsius": 3}}),
            ("out_1", {"type": "finish-step"}),
            ("out_1", {"type": "finish", "messageMetadata": {"pai": {"status": "committed"}}}),
        ],
        messages=[open_message("out_2")],
    )
    thread.live(
        "out_2",
        {"type": "start", "messageId": "out_2"},
        {"type": "start-step"},
        {"type": "text-start", "id": "y"},
        *({"type": "text-delta", "id": "y", "delta": f"{n} degrees "} for n in range(5)),
        {"type": "text-end", "id": "y"},
    )
    thread.finish("out_2")
