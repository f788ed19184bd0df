"""The chunks a model step consists of, made in one place: what the mapper, the demo model and scripts emit."""

from collections.abc import Iterable, Sequence
from typing import Any

from pai.models.model import Chunk
from pai.protocol.json import dumps_text


def tool_input_start(call_id: str, name: str, *, dynamic: bool = False, provider_executed: bool = False) -> Chunk:
    return _tool("tool-input-start", call_id, name, dynamic=dynamic, provider_executed=provider_executed)


def tool_input_available(
    call_id: str, name: str, input: Any, *, dynamic: bool = False, provider_executed: bool = False
) -> Chunk:
    chunk = _tool("tool-input-available", call_id, name, dynamic=dynamic, provider_executed=provider_executed)
    chunk["input"] = input
    return chunk


def tool_input_error(
    call_id: str, name: str, input: Any, error: str, *, dynamic: bool = False, provider_executed: bool = False
) -> Chunk:
    chunk = _tool("tool-input-error", call_id, name, dynamic=dynamic, provider_executed=provider_executed)
    return {**chunk, "input": input, "errorText": error}


def text(deltas: Sequence[str] | str, *, id: str = "text-1") -> list[Chunk]:
    """A whole text part."""
    return _written("text", deltas, id)


def reasoning(deltas: Sequence[str] | str, *, id: str) -> list[Chunk]:
    """A whole reasoning part; the id must be unique within the run."""
    return _written("reasoning", deltas, id)


def tool_call(call_id: str, name: str, input: Any, *, deltas: int = 1, dynamic: bool = False) -> list[Chunk]:
    """A whole tool call whose input arrives in `deltas` pieces; the id must be unique within the run."""
    return [
        tool_input_start(call_id, name, dynamic=dynamic),
        *(
            {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": piece}
            for piece in pieces(dumps_text(input), deltas)
        ),
        tool_input_available(call_id, name, input, dynamic=dynamic),
    ]


def pieces(value: str, count: int) -> Iterable[str]:
    """`value` cut into at most `count` non-empty pieces."""
    size = max(1, -(-len(value) // max(1, count)))
    return (value[at : at + size] for at in range(0, len(value), size))


def _written(kind: str, deltas: Sequence[str] | str, id: str) -> list[Chunk]:
    given = [deltas] if isinstance(deltas, str) else deltas
    return [
        {"type": f"{kind}-start", "id": id},
        *({"type": f"{kind}-delta", "id": id, "delta": delta} for delta in given),
        {"type": f"{kind}-end", "id": id},
    ]


def _tool(kind: str, call_id: str, name: str, *, dynamic: bool, provider_executed: bool) -> Chunk:
    chunk: Chunk = {"type": kind, "toolCallId": call_id, "toolName": name}
    if dynamic:
        chunk["dynamic"] = True
    if provider_executed:
        chunk["providerExecuted"] = True
    return chunk
