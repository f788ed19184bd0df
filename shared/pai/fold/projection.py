"""Reserved parts joined onto the parts they belong to: the message as a consumer sees it.

A tool part gets `data` (name to value), `suspensions` (each `{id, name, input, state, resume?, reason?, createdAt,
resolvedAt?}`), `pendingSuspension` (the last pending one, or null) and, when there is one, `error` (`{message, code?,
detail?}`). A reasoning part gets `summary`. An attachment becomes `{type: "attachment", id, fileId, mediaType,
filename?, byteSize?, metadata?}`. Reserved parts go; those that are not understood, or whose owner is missing, too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pai.fold.reserved import Reserved, SuspensionState, is_reserved
from pai.protocol.parts import is_tool_part

Message = dict[str, Any]
Part = dict[str, Any]

# What a newer peer might leave out or make otherwise is passed over, never half shown.
_REQUIRED: dict[str, tuple[str, ...]] = {
    Reserved.SUSPENSION: ("toolCallId", "name", "state"),
    Reserved.TOOL_DATA: ("toolCallId", "name", "value"),
    Reserved.TOOL_ERROR: ("toolCallId", "message"),
    Reserved.REASONING_SUMMARY: ("summary",),
}
_ATTACHMENT_KEYS = ("filename", "byteSize", "metadata")


class Projection:
    """Projects messages again and again: what did not change is the same object as the last time."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def project(self, message: Message) -> Message:
        """The message as a consumer sees it; the message itself when there is nothing to join."""
        seen = self._seen.get(message["id"])
        if seen is None:
            seen = self._seen[message["id"]] = _Seen()
        return seen.project(message)

    def project_all(self, messages: Iterable[Message]) -> list[Message]:
        """All messages there are: what is remembered of others is forgotten."""
        projected = [self.project(message) for message in messages]
        if len(self._seen) > len(projected):
            ids = {message["id"] for message in projected}
            self._seen = {key: seen for key, seen in self._seen.items() if key in ids}
        return projected


def project(message: Message) -> Message:
    """The message as a consumer sees it, without a memory."""
    return _Seen().project(message)


class _Seen:
    """What was made of one message: per part, the part and its sidecars, and the result."""

    def __init__(self) -> None:
        self._message: Message | None = None
        self._result: Message = {}
        self._made: dict[int, tuple[Part, list[Part], Part]] = {}

    def project(self, message: Message) -> Message:
        if message is self._message:
            return self._result
        parts = self._project(message["parts"])
        if _same(parts, message["parts"]):
            result = message
        elif self._shows(message, parts):
            result = self._result
        else:
            result = {**message, "parts": parts}
        self._message, self._result = message, result
        return result

    def _shows(self, message: Message, parts: list[Part]) -> bool:
        """Whether the last result is what would be made now."""
        last = self._result
        if last.keys() != message.keys() or not _same(parts, last["parts"]):
            return False
        return all(last[key] is value for key, value in message.items() if key != "parts")

    def _project(self, parts: list[Part]) -> list[Part]:
        sidecars = _sidecars(parts)
        made: dict[int, tuple[Part, list[Part], Part]] = {}
        projected: list[Part] = []
        for index, part in enumerate(parts):
            kind = part["type"]
            if is_reserved(kind) and kind != Reserved.ATTACHMENT:
                continue
            own = sidecars.get(index, [])
            if own or is_tool_part(part) or kind == Reserved.ATTACHMENT:
                known = self._made.get(index)
                if known is None or known[0] is not part or not _same(known[1], own):
                    known = (part, own, _join(part, own))
                made[index] = known
                if known[2]:
                    projected.append(known[2])
            else:
                projected.append(part)
        self._made = made
        return projected


def _same(left: Sequence[Part], right: Sequence[Part]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _sidecars(parts: list[Part]) -> dict[int, list[Part]]:
    """Index of a part -> the reserved parts that belong to it. Of several owners with one id it is the last."""
    reserved = [part for part in parts if _is_sidecar(part)]
    if not reserved:
        return {}
    calls: dict[str, int] = {}
    reasoning: dict[str, int] = {}
    for index, part in enumerate(parts):
        if is_tool_part(part):
            calls[part["toolCallId"]] = index
        elif part["type"] == "reasoning" and "id" in part:
            reasoning[part["id"]] = index
    found: dict[int, list[Part]] = {}
    for part in reserved:
        if part["type"] == Reserved.REASONING_SUMMARY:
            owner = reasoning.get(part["id"])
        else:
            owner = calls.get(part["data"]["toolCallId"])
        if owner is not None:
            found.setdefault(owner, []).append(part)
    return found


def _is_sidecar(part: Part) -> bool:
    required = _REQUIRED.get(part["type"])
    if required is None or not isinstance(part.get("id"), str):
        return False
    data = part.get("data")
    return (
        isinstance(data, dict) and all(key in data for key in required) and isinstance(data.get("toolCallId", ""), str)
    )


def _join(part: Part, sidecars: list[Part]) -> Part:
    """The projected part; empty for what cannot be shown."""
    if part["type"] == Reserved.ATTACHMENT:
        return _attachment(part)
    if part["type"] == "reasoning":
        return {**part, "summary": sidecars[-1]["data"]["summary"]}
    data: dict[str, Any] = {}
    suspensions: list[dict[str, Any]] = []
    error: dict[str, Any] | None = None
    for sidecar in sidecars:
        value = sidecar["data"]
        match sidecar["type"]:
            case Reserved.TOOL_DATA:
                data[value["name"]] = value["value"]
            case Reserved.SUSPENSION:
                suspensions.append({"id": sidecar["id"], **_without_call(value)})
            case Reserved.TOOL_ERROR:
                error = _without_call(value)
    pending = next((each for each in reversed(suspensions) if each["state"] == SuspensionState.PENDING), None)
    joined = {**part, "data": data, "suspensions": suspensions, "pendingSuspension": pending}
    return joined if error is None else {**joined, "error": error}


def _without_call(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "toolCallId"}


def _attachment(part: Part) -> Part:
    data = part.get("data")
    if not isinstance(data, dict) or not {"fileId", "mediaType"} <= data.keys() or "id" not in part:
        return {}
    optional = {key: data[key] for key in _ATTACHMENT_KEYS if key in data}
    return {
        "type": "attachment",
        "id": part["id"],
        "fileId": data["fileId"],
        "mediaType": data["mediaType"],
        **optional,
    }
