"""How open parts, calls and messages end: the chunks that leave a message valid for every provider and every reader."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pai.fold.partial_json import ABSENT
from pai.fold.reserved import Reserved, SuspensionState, resolved_suspension, tool_error
from pai.protocol.parts import is_tool_part, tool_name
from pai.protocol.state import ErrorCode
from pai.protocol.times import iso
from pai.protocol.tool_parts import is_settled

Chunk = dict[str, Any]

TEXTS: Mapping[ErrorCode, str] = {
    ErrorCode.stopped: "The call was stopped before it finished.",
    ErrorCode.cancelled: "The call was cancelled.",
    ErrorCode.superseded: "The call was superseded by newer input from the user.",
    ErrorCode.timeout: "The call took too long and was ended.",
    ErrorCode.interrupted: "The call was interrupted while it ran; whether it took effect is unknown.",
    ErrorCode.input_invalid: "The input is not valid for this tool.",
    ErrorCode.output_invalid: "The tool returned something that does not fit its declaration.",
    ErrorCode.failed: "The tool failed.",
    ErrorCode.unknown_tool: "There is no such tool.",
    ErrorCode.changed_since_suspension: "What was asked changed since the call was suspended.",
}
"""What the model and people read when nothing more exact is known."""


def own_calls(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool parts that PAI must settle: all but those the provider executes itself."""
    return [part for part in parts if is_tool_part(part) and not part.get("providerExecuted")]


def call_error(
    tool_call_id: str, code: ErrorCode | str, *, text: str | None = None, detail: Any = ABSENT
) -> list[Chunk]:
    """The chunks that settle a call as output-error, with its sidecar for people."""
    message = text or TEXTS.get(cast(ErrorCode, code), TEXTS[ErrorCode.failed])
    return [
        {"type": "tool-output-error", "toolCallId": tool_call_id, "errorText": message},
        tool_error(tool_call_id, message, code=str(code), detail=detail),
    ]


def call_failed(
    parts: Iterable[dict[str, Any]],
    tool_call_id: str,
    code: ErrorCode | str,
    *,
    now: int,
    text: str | None = None,
    detail: Any = ABSENT,
    state: SuspensionState = SuspensionState.CANCELLED,
    reason: str | None = None,
) -> list[Chunk]:
    """As `call_error`, and the call's pending suspension is resolved as `state`."""
    pending = pending_suspension(parts, tool_call_id)
    resolved = (
        []
        if pending is None
        else [resolved_suspension(pending, state=state, resolved_at=iso(now), reason=reason or str(code))]
    )
    return [*resolved, *call_error(tool_call_id, code, text=text, detail=detail)]


def pending_suspension(parts: Iterable[dict[str, Any]], tool_call_id: str) -> dict[str, Any] | None:
    """The reserved part of the suspension that a call waits in; None when it does not."""
    for part in parts:
        data = part["data"] if part["type"] == Reserved.SUSPENSION else {}
        if data.get("toolCallId") == tool_call_id and data["state"] == SuspensionState.PENDING:
            return part
    return None


def open_parts_ended(folding: Mapping[str, Any]) -> list[Chunk]:
    """Ends for the text and reasoning parts that are still open."""
    return [{"type": "reasoning-end", "id": part} for part in folding["reasoning"]] + [
        {"type": "text-end", "id": part} for part in folding["text"]
    ]


def unsettled_calls_failed(
    parts: Sequence[dict[str, Any]], code: ErrorCode, *, now: int, text: str | None = None
) -> list[Chunk]:
    """Error results for every call that has no result yet.

    A call whose input was still streaming gets what has arrived of it as its input: providers want an input with every
    call, and an object is what they accept.
    """
    chunks: list[Chunk] = []
    for part in parts:
        if not is_tool_part(part) or is_settled(part):
            continue
        call_id = part["toolCallId"]
        if part["state"] == "input-streaming":
            partial = part.get("input")
            dynamic = {"dynamic": True} if part["type"] == "dynamic-tool" else {}
            available = {
                "type": "tool-input-available",
                "toolCallId": call_id,
                "toolName": tool_name(part),
                "input": partial if isinstance(partial, dict) else {},
            }
            executed = {"providerExecuted": True} if part.get("providerExecuted") else {}
            chunks.append(available | dynamic | executed)
        chunks += call_failed(parts, call_id, code, now=now, text=text)
    return chunks


def facts_updated(now: int, **facts: Any) -> dict[str, Any]:
    """Message metadata that brings `metadata.pai` up to date."""
    return {"pai": {**facts, "updatedAt": iso(now)}}


def message_finished(reason: str, *, now: int, facts: Mapping[str, Any] | None = None) -> list[Chunk]:
    """The last chunks of a message whose calls are settled. Reasons the AI SDK has no word for become `other`."""
    known = reason if reason in {"stop", "length", "content-filter", "tool-calls", "error"} else "other"
    metadata = facts_updated(now, status="committed", **(facts or {}))
    return [{"type": "finish-step"}, {"type": "finish", "finishReason": known, "messageMetadata": metadata}]


def message_aborted(reason: str, *, now: int, facts: Mapping[str, Any] | None = None) -> list[Chunk]:
    """The last chunks of a message that was stopped."""
    metadata = facts_updated(now, status="committed", **(facts or {}))
    return [
        {"type": "message-metadata", "messageMetadata": metadata},
        {"type": "finish-step"},
        {"type": "abort", "reason": reason},
    ]


def is_empty(parts: Iterable[dict[str, Any]]) -> bool:
    """Whether a message holds nothing that anybody could see."""
    return all(
        part["type"] == "step-start" or (part["type"] in ("text", "reasoning") and not part["text"]) for part in parts
    )
