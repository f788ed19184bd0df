"""The fold: chunks of a UI message stream applied to one message, as the AI SDK's reader does it."""

from collections.abc import Callable
from typing import Any, cast

from pai.fold.errors import FoldError, Malformed
from pai.fold.metadata import merge_metadata
from pai.fold.open import OpenInput, OpenText
from pai.fold.parts import DYNAMIC, STEP_START, Part, Parts, is_tool
from pai.fold.tools import ToolCalls
from pai.protocol.state import FoldingState

Chunk = dict[str, Any]
Message = dict[str, Any]


class Fold:
    """One message that grows by chunks. Applying a chunk costs the same at any length of the message.

    `message`: the one to continue (not changed); one of another role than assistant lends only its id. `folding`: what
    `folding()` of another fold gave, to go on in the middle of a part; without it tool inputs of the last step that are
    still streaming are open, texts are not. `on_data` sees every data chunk, transient ones too, after it was applied.

    Values of chunks are shared with the message, not copied, and never changed. `javascript` keeps lone surrogates and
    numbers beyond 64 bits in partial inputs as JavaScript has them; such a message cannot be encoded.

    A `start` with another message id begins an empty message.
    """

    def __init__(
        self,
        message: Message | None = None,
        folding: FoldingState | None = None,
        *,
        on_data: Callable[[Chunk], None] | None = None,
        javascript: bool = False,
    ) -> None:
        self.finish_reason: str | None = None
        self._on_data = on_data
        self._javascript = javascript
        self._shown: Message | None = None
        if message is not None and message.get("role") == "assistant":
            self._begin(dict(message), message.get("parts") or [])
        else:
            self._begin({"id": "" if message is None else message["id"], "role": "assistant"}, [])
        if folding is None:
            self._reopen_inputs()
        else:
            self._restore(folding)

    @property
    def id(self) -> str:
        return cast(str, self._head["id"])

    @property
    def metadata(self) -> Any:
        """The message's metadata; None when it has none."""
        return self._head.get("metadata")

    @property
    def part_count(self) -> int:
        return len(self._parts.items)

    @property
    def message(self) -> Message:
        """The message as it is now, plain JSON. It is a value to keep: later chunks make new objects.

        Looking twice without a chunk in between gives the same object; parts that did not change are the same objects.
        """
        if self._shown is None:
            self._shown = {**self._head, "parts": list(self._parts.settle_all())}
        return self._shown

    def folding(self) -> FoldingState:
        """What a fold needs besides the message to go on from here, plain JSON."""
        return {
            "text": {part_id: entry.index for part_id, entry in self._text.items()},
            "reasoning": {part_id: entry.index for part_id, entry in self._reasoning.items()},
            "tools": {call_id: entry.state() for call_id, entry in self._tools.inputs.items()},
        }

    def ending(self) -> list[Chunk]:
        """The chunks that end every open text and reasoning part, in the order of the parts."""
        opened = [(entry.index, "text-end", part_id) for part_id, entry in self._text.items()]
        opened += [(entry.index, "reasoning-end", part_id) for part_id, entry in self._reasoning.items()]
        return [{"type": kind, "id": part_id} for _, kind, part_id in sorted(opened)]

    def apply(self, chunk: Any) -> bool:
        """Apply a chunk; true when a reader shows the message after it. Unknown types are ignored.

        Raises FoldError for a chunk that does not fit, or lacks what its type needs, and the message is as it was.
        """
        try:
            kind = chunk["type"]
            handler = _HANDLERS.get(kind)
            if handler is not None:
                emits = handler(self, chunk)
                self._shown = None
                return emits
            if not kind.startswith("data-"):
                return False
            emits = self._data(chunk)
        except (KeyError, TypeError, AttributeError) as error:
            raise Malformed(f"malformed chunk: {error}") from error
        if self._on_data is not None:
            self._on_data(chunk)
        return emits

    def _begin(self, head: Message, parts: list[Part]) -> None:
        head.pop("parts", None)
        self._head = head
        self._parts = Parts(parts, javascript=self._javascript)
        self._text: dict[str, OpenText] = {}
        self._reasoning: dict[str, OpenText] = {}
        self._tools = ToolCalls(self._parts)

    def _reopen_inputs(self) -> None:
        for part in self._parts.step():
            if is_tool(part) and part.get("state") == "input-streaming":
                dynamic = part["type"] == DYNAMIC
                optional = {key: part[key] for key in ("title", "inputEncoding", "toolMetadata") if key in part}
                name = part["toolName"] if dynamic else part["type"].removeprefix("tool-")
                text = part.get("rawInput") or ""
                self._tools.inputs[part["toolCallId"]] = OpenInput(name, text=text, dynamic=dynamic, **optional)

    def _restore(self, folding: FoldingState) -> None:
        items = self._parts.items
        for kind, positions, opened in (
            ("text", folding["text"], self._text),
            ("reasoning", folding["reasoning"], self._reasoning),
        ):
            for part_id, index in positions.items():
                if not 0 <= index < len(items) or items[index].get("type") != kind:
                    raise Malformed(f"folding state does not fit the message: no {kind} part at {index}")
                opened[part_id] = OpenText(index, items[index]["text"])
        for call_id, state in folding["tools"].items():
            self._tools.inputs[call_id] = OpenInput.restore(state)

    def _start(self, chunk: Chunk) -> bool:
        message_id, metadata = chunk.get("messageId"), chunk.get("messageMetadata")
        other = message_id is not None and message_id != self.id
        merged = metadata if other or metadata is None else merge_metadata(self.metadata, metadata)
        if other:
            self._begin({"id": message_id, "role": "assistant"}, [])
            self.finish_reason = None
        if metadata is not None:
            self._head["metadata"] = merged
        return message_id is not None or metadata is not None

    def _finish(self, chunk: Chunk) -> bool:
        emits = self._merge(chunk)
        if chunk.get("finishReason") is not None:
            self.finish_reason = chunk["finishReason"]
        return emits

    def _merge(self, chunk: Chunk) -> bool:
        metadata = chunk.get("messageMetadata")
        if metadata is None:
            return False
        self._head["metadata"] = merge_metadata(self.metadata, metadata)
        return True

    def _start_step(self, chunk: Chunk) -> bool:
        self._parts.append({"type": STEP_START})
        return False

    def _reset_step(self, chunk: Chunk) -> bool:
        self._text, self._reasoning = {}, {}
        self._tools.inputs = {}
        return self._parts.reset_step()

    def _data(self, chunk: Chunk) -> bool:
        if chunk.get("transient"):
            return False
        data_id = chunk.get("id")
        index = None if data_id is None else self._parts.data(chunk["type"], data_id)
        if index is None:
            self._parts.append(dict(chunk))
        else:
            self._parts.replace(index, {**self._parts.items[index], "data": chunk["data"]})
        self._shown = None
        return True

    def _append(self, chunk: Chunk, *keys: str) -> bool:
        self._parts.append({key: chunk[key] for key in ("type", *keys) if key in chunk})
        return True

    def _file(self, chunk: Chunk) -> bool:
        metadata = (_METADATA,) if chunk.get(_METADATA) is not None else ()
        return self._append(chunk, "mediaType", "url", *metadata)

    def _open_part(self, chunk: Chunk, kind: str) -> bool:
        part: Part = {"type": kind, "text": "", "state": "streaming"}
        part_id = chunk["id"]
        if kind == "reasoning":
            part["id"] = part_id
        if "providerMetadata" in chunk:
            part["providerMetadata"] = chunk["providerMetadata"]
        opened = self._text if kind == "text" else self._reasoning
        opened[part_id] = OpenText(len(self._parts.items))
        self._parts.append(part)
        return True

    def _delta(self, chunk: Chunk, kind: str) -> bool:
        entry = (self._text if kind == "text" else self._reasoning).get(chunk["id"])
        if entry is None:
            raise _not_open(chunk, kind)
        delta = chunk["delta"]
        if not isinstance(delta, str):
            raise TypeError("delta")
        parts = self._parts
        if chunk.get("providerMetadata") is not None:
            parts.replace(entry.index, {**parts.items[entry.index], "providerMetadata": chunk["providerMetadata"]})
        entry.pieces.append(delta)
        parts.pend(entry.index, entry)
        return True

    def _end_part(self, chunk: Chunk, kind: str) -> bool:
        opened = self._text if kind == "text" else self._reasoning
        entry = opened.pop(chunk["id"], None)
        if entry is None:
            raise _not_open(chunk, kind)
        part = {**self._parts.settle(entry.index), "state": "done"}
        if kind == "text" and chunk.get("citations") is not None:
            part["citations"] = chunk["citations"]
        if chunk.get("providerMetadata") is not None:
            part["providerMetadata"] = chunk["providerMetadata"]
        self._parts.replace(entry.index, part)
        return True


def _not_open(chunk: Chunk, kind: str) -> FoldError:
    return FoldError(
        f'Received {chunk["type"]} for missing {kind} part with ID "{chunk["id"]}". '
        f'Ensure a "{kind}-start" chunk is sent before any "{chunk["type"]}" chunks.',
        chunk_type=chunk["type"],
        chunk_id=chunk["id"],
    )


_METADATA = "providerMetadata"
_HANDLERS: dict[str, Callable[[Fold, Chunk], bool]] = {
    "start": Fold._start,
    "finish": Fold._finish,
    "message-metadata": Fold._merge,
    "start-step": Fold._start_step,
    "reset-step": Fold._reset_step,
    "text-start": lambda fold, chunk: fold._open_part(chunk, "text"),
    "text-delta": lambda fold, chunk: fold._delta(chunk, "text"),
    "text-end": lambda fold, chunk: fold._end_part(chunk, "text"),
    "reasoning-start": lambda fold, chunk: fold._open_part(chunk, "reasoning"),
    "reasoning-delta": lambda fold, chunk: fold._delta(chunk, "reasoning"),
    "reasoning-end": lambda fold, chunk: fold._end_part(chunk, "reasoning"),
    "file": Fold._file,
    "reasoning-file": Fold._file,
    "source-url": lambda fold, chunk: fold._append(chunk, "sourceId", "url", "title", _METADATA),
    "source-document": lambda fold, chunk: fold._append(chunk, "sourceId", "mediaType", "title", "filename", _METADATA),
    "custom": lambda fold, chunk: fold._append(chunk, "kind", _METADATA),
    "steering-message": lambda fold, chunk: fold._append(chunk, "id", "parts"),
    "tool-input-start": lambda fold, chunk: fold._tools.input_start(chunk),
    "tool-input-delta": lambda fold, chunk: fold._tools.input_delta(chunk),
    "tool-input-available": lambda fold, chunk: fold._tools.input_available(chunk),
    "tool-input-error": lambda fold, chunk: fold._tools.input_error(chunk),
    "tool-approval-request": lambda fold, chunk: fold._tools.approval_request(chunk),
    "tool-approval-response": lambda fold, chunk: fold._tools.approval_response(chunk),
    "tool-output-available": lambda fold, chunk: fold._tools.output_available(chunk),
    "tool-output-error": lambda fold, chunk: fold._tools.output_error(chunk),
    "tool-output-denied": lambda fold, chunk: fold._tools.output_denied(chunk),
}
