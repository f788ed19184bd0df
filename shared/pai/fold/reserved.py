"""The parts that are PAI's own: what they hold, and the chunks that make them.

They are ordinary `data-pai-*` parts, so that any AI SDK client can fold any PAI stream; the projection joins them onto
the part that they belong to. A chunk with the type and id of an earlier one replaces that one's data, all of it.
"""

from enum import StrEnum
from typing import Any

from pai.fold.partial_json import ABSENT

PREFIX = "data-pai-"


class Reserved(StrEnum):
    SUSPENSION = "data-pai-suspension"
    TOOL_DATA = "data-pai-tool-data"
    TOOL_ERROR = "data-pai-tool-error"
    REASONING_SUMMARY = "data-pai-reasoning-summary"
    ATTACHMENT = "data-pai-attachment"


class SuspensionState(StrEnum):
    PENDING = "pending"
    RESUMED = "resumed"
    CANCELLED = "cancelled"
    FAILED = "failed"


def is_reserved(kind: str) -> bool:
    """Whether a part or chunk type is PAI's own. Such data is never given to an application as data."""
    return kind.startswith(PREFIX)


def _chunk(kind: Reserved, data_id: str, data: dict[str, Any], **optional: Any) -> dict[str, Any]:
    data.update({key: value for key, value in optional.items() if value is not ABSENT and value is not None})
    return {"type": kind.value, "id": data_id, "data": data}


def suspension(suspension_id: str, *, tool_call_id: str, name: str, input: Any, created_at: str) -> dict[str, Any]:
    """A tool call waits for an answer. `created_at` is an ISO 8601 time."""
    data = {
        "toolCallId": tool_call_id,
        "name": name,
        "input": input,
        "state": SuspensionState.PENDING.value,
        "createdAt": created_at,
    }
    return _chunk(Reserved.SUSPENSION, suspension_id, data)


def resolved_suspension(
    part: dict[str, Any],
    *,
    state: SuspensionState,
    resolved_at: str,
    resume: Any = ABSENT,
    reason: str | None = None,
) -> dict[str, Any]:
    """The suspension `part` (or its chunk) with its outcome; `resume` is the answer's payload, which may be None."""
    data = {**part["data"], "state": state.value}
    if resume is not ABSENT:
        data["resume"] = resume
    return _chunk(Reserved.SUSPENSION, part["id"], data, reason=reason, resolvedAt=resolved_at)


def tool_data_id(tool_call_id: str, name: str) -> str:
    return f"{tool_call_id}:{name}"


def tool_data(tool_call_id: str, name: str, value: Any) -> dict[str, Any]:
    """The latest value of one name of a tool call's data."""
    data = {"toolCallId": tool_call_id, "name": name, "value": value}
    return _chunk(Reserved.TOOL_DATA, tool_data_id(tool_call_id, name), data)


def tool_error(tool_call_id: str, message: str, *, code: str | None = None, detail: Any = ABSENT) -> dict[str, Any]:
    """What people may know about a failed call besides the text that the model reads."""
    data: dict[str, Any] = {"toolCallId": tool_call_id, "message": message}
    if code is not None:
        data["code"] = code
    if detail is not ABSENT:
        data["detail"] = detail
    return _chunk(Reserved.TOOL_ERROR, tool_call_id, data)


def reasoning_summary(reasoning_id: str, summary: str) -> dict[str, Any]:
    return _chunk(Reserved.REASONING_SUMMARY, reasoning_id, {"summary": summary})


def attachment(
    attachment_id: str,
    *,
    file_id: str,
    media_type: str,
    filename: str | None = None,
    byte_size: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A file of PAI's in a message: as a chunk, and as the stored part."""
    data: dict[str, Any] = {"fileId": file_id, "mediaType": media_type}
    return _chunk(Reserved.ATTACHMENT, attachment_id, data, filename=filename, byteSize=byte_size, metadata=metadata)
