"""Chunks about tool calls applied to the parts of a message."""

from typing import Any, NoReturn

from pai.fold.errors import FoldError
from pai.fold.open import OpenInput
from pai.fold.partial_json import ABSENT
from pai.fold.parts import DYNAMIC, Part, Parts

Chunk = dict[str, Any]

# A chunk that updates a tool part says all of these; what it does not say is gone from the part.
_OVERWRITTEN = frozenset({"input", "output", "errorText", "rawInput", "preliminary", "inputEncoding"})
_WITH_RESULT = frozenset({"output-available", "output-error"})


def _given(chunk: Chunk, *keys: str) -> dict[str, Any]:
    return {key: chunk[key] for key in keys if key in chunk}


class ToolCalls:
    """The tool side of a fold: open inputs by call id. An input is never closed, only a reset forgets it."""

    def __init__(self, parts: Parts) -> None:
        self.inputs: dict[str, OpenInput] = {}
        self._parts = parts

    def input_start(self, chunk: Chunk) -> bool:
        call_id, name, dynamic = chunk["toolCallId"], chunk["toolName"], chunk.get("dynamic")
        optional = _given(chunk, "title", "toolMetadata")
        encoding = chunk.get("inputEncoding")
        self._upsert(
            call_id,
            name,
            "input-streaming",
            dynamic=bool(dynamic),
            content={} if encoding is None else {"inputEncoding": encoding},
            chunk=chunk,
            optional=optional,
        )
        self.inputs[call_id] = OpenInput(name, dynamic=dynamic, inputEncoding=encoding, **optional)
        return True

    def input_delta(self, chunk: Chunk) -> bool:
        call_id, delta = chunk["toolCallId"], chunk["inputTextDelta"]
        entry = self.inputs.get(call_id)
        if entry is None:
            raise FoldError(
                f'Received tool-input-delta for missing tool call with ID "{call_id}". '
                'Ensure a "tool-input-start" chunk is sent before any "tool-input-delta" chunks.',
                chunk_type="tool-input-delta",
                chunk_id=call_id,
            )
        if not isinstance(delta, str):
            raise TypeError("inputTextDelta")
        parts = self._parts
        dynamic = bool(entry.dynamic)
        index = parts.in_step(call_id, dynamic=dynamic)
        if index is not None and index == entry.index and entry.raw and parts.pending(index) is entry:
            entry.append(delta)
            return True
        if entry.index >= 0 and parts.pending(entry.index) is entry:
            parts.settle(entry.index)
        # A dynamic part that a delta makes has no raw input until the next one.
        entry.raw = index is not None or not dynamic
        entry.index = self._upsert(
            call_id,
            entry.tool_name,
            "input-streaming",
            dynamic=dynamic,
            content={} if entry.encoding is None else {"inputEncoding": entry.encoding},
            chunk={},
            optional={
                key: value
                for key, value in (("title", entry.title), ("toolMetadata", entry.metadata))
                if value is not ABSENT
            },
        )
        entry.append(delta)
        parts.pend(entry.index, entry)
        return True

    def input_available(self, chunk: Chunk) -> bool:
        self._upsert(
            chunk["toolCallId"],
            chunk["toolName"],
            "input-available",
            dynamic=bool(chunk.get("dynamic")),
            content=_given(chunk, "input"),
            chunk=chunk,
            optional=_given(chunk, "title", "toolMetadata"),
        )
        return True

    def input_error(self, chunk: Chunk) -> bool:
        call_id = chunk["toolCallId"]
        index = self._parts.any_in_step(call_id)
        dynamic = bool(chunk.get("dynamic")) if index is None else self._parts.items[index]["type"] == DYNAMIC
        self._upsert(
            call_id,
            chunk["toolName"],
            "output-error",
            dynamic=dynamic,
            content=_given(chunk, "input", "errorText"),
            chunk=chunk,
            optional=_given(chunk, "toolMetadata"),
        )
        return True

    def output_available(self, chunk: Chunk) -> bool:
        return self._output(chunk, "output-available", ("output", "preliminary"), ())

    def output_error(self, chunk: Chunk) -> bool:
        return self._output(chunk, "output-error", ("errorText",), ("rawInput",))

    def output_denied(self, chunk: Chunk) -> bool:
        index = self._call(chunk["toolCallId"])
        self._parts.replace(index, {**self._parts.settle(index), "state": "output-denied"})
        return True

    def approval_request(self, chunk: Chunk) -> bool:
        approval: dict[str, Any] = {"id": chunk["approvalId"]}
        if chunk.get("approvalDescriptor") is not None:
            approval["descriptor"] = chunk["approvalDescriptor"]
        approval.update(_given(chunk, "inputSchemaInput"))
        if chunk.get("reason") is not None:
            approval["requestReason"] = chunk["reason"]
        if chunk.get("isAutomatic") is True:
            approval["isAutomatic"] = True
        if chunk.get("signature") is not None:
            approval["signature"] = chunk["signature"]
        index = self._call(chunk["toolCallId"])
        part = self._parts.settle(index)
        self._parts.replace(index, {**part, "state": "approval-requested", "approval": approval})
        return True

    def approval_response(self, chunk: Chunk) -> bool:
        approval_id, approved = chunk["approvalId"], chunk["approved"]
        index = self._parts.approval(approval_id)
        if index is None:
            raise FoldError(
                f'No tool invocation found for approval ID "{approval_id}".',
                chunk_type="tool-approval-response",
                chunk_id=approval_id,
            )
        part = self._parts.settle(index)
        approval = {**part["approval"], "approved": approved}
        if chunk.get("reason") is not None:
            approval["reason"] = chunk["reason"]
        new = {**part, "state": "approval-responded", "approval": approval}
        if chunk.get("providerExecuted") is not None:
            new["providerExecuted"] = chunk["providerExecuted"]
        if chunk.get("providerMetadata") is not None:
            new["callProviderMetadata"] = chunk["providerMetadata"]
        self._parts.replace(index, new)
        return True

    def _output(self, chunk: Chunk, state: str, told: tuple[str, ...], kept_if_static: tuple[str, ...]) -> bool:
        index = self._call(chunk["toolCallId"])
        part = self._parts.settle(index)
        kept = ("input",) if part["type"] == DYNAMIC else ("input", *kept_if_static)
        new = {key: value for key, value in part.items() if key not in _OVERWRITTEN or key in kept}
        new["state"] = state
        new.update(_given(chunk, *told))
        if chunk.get("toolMetadata") is not None:
            new["toolMetadata"] = chunk["toolMetadata"]
        self._put_provider(new, chunk, state)
        self._parts.replace(index, new)
        return True

    def _call(self, call_id: str) -> int:
        index = self._parts.call(call_id)
        if index is None:
            self._no_call(call_id)
        return index

    @staticmethod
    def _no_call(call_id: str) -> NoReturn:
        raise FoldError(
            f'No tool invocation found for tool call ID "{call_id}".', chunk_type="tool-invocation", chunk_id=call_id
        )

    @staticmethod
    def _put_provider(part: Part, chunk: Chunk, state: str) -> None:
        if chunk.get("providerExecuted") is not None:
            part["providerExecuted"] = chunk["providerExecuted"]
        if chunk.get("providerMetadata") is not None:
            key = "resultProviderMetadata" if state in _WITH_RESULT else "callProviderMetadata"
            part[key] = chunk["providerMetadata"]

    def _upsert(
        self,
        call_id: str,
        name: str,
        state: str,
        *,
        dynamic: bool,
        content: dict[str, Any],
        chunk: Chunk,
        optional: dict[str, Any],
    ) -> int:
        """Update the part of that kind in the current step, or append one. Only there: a call of an earlier step gets a
        second part. Returns its index."""
        parts = self._parts
        index = parts.in_step(call_id, dynamic=dynamic)
        type_keys = {"type": DYNAMIC, "toolName": name} if dynamic else {"type": f"tool-{name}"}
        if index is None:
            new = {**type_keys, "toolCallId": call_id, "state": state, **optional, **content}
            new.update(_given(chunk, "providerExecuted"))
            self._put_provider(new, chunk, state)
            return parts.append(new)
        parts.drop(index)
        old = parts.items[index]
        new = {key: value for key, value in old.items() if key not in _OVERWRITTEN}
        new.update(type_keys)
        new["state"] = state
        new.update(optional)
        new.update(content)
        self._put_provider(new, chunk, state)
        parts.replace(index, new)
        return index
