"""Events of a provider's stream to chunks: what a message is made of is decided here, not by the library below.

Ends are late on purpose. The metadata of a part (signatures, encrypted reasoning, citations) may arrive after its last
delta, and a chunk that closes a part is the last that can carry it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import (
    BaseToolCallPart,
    CompactionPart,
    FilePart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPartDelta,
)

from pai.models import chunks
from pai.models.generated_files import GeneratedFile
from pai.models.model import Chunk, FinishReason, ToolDefinition
from pai.models.part_ids import PartIds
from pai.models.part_metadata import plain_json, write_metadata
from pai.models.sources import Sources
from pai.models.tool_input import parse_tool_input
from pai.protocol.text import DeltaCleaner, clean_text

TRUNCATED = "The call was cut off because the model reached its output limit. It was not executed."


Mapped = list[Chunk | GeneratedFile]


@dataclass
class _Open:
    """A part of the response that was started. `id` is the chunk id, or the tool call id."""

    part: ModelResponsePart
    id: str
    cleaner: DeltaCleaner = field(default_factory=DeltaCleaner)
    ended: bool = False


class StreamMapper:
    """Maps one step. Feed every event, then `end` with the final response.

    `parts` gives the parts of the response as they are now. `hold_text`: the provider may add citations to a text after
    later parts, so texts end with the stream.
    """

    def __init__(
        self,
        *,
        parts: Callable[[], Sequence[ModelResponsePart]],
        tools: Sequence[ToolDefinition] = (),
        used_ids: frozenset[str] = frozenset(),
        hold_text: bool = False,
    ) -> None:
        self._parts = parts
        self._dynamic = {tool.name for tool in tools if tool.dynamic}
        self._ids = PartIds(used_ids)
        self._hold_text = hold_text
        self._open: dict[int, _Open] = {}
        self._sources = Sources()
        self.has_calls = False

    def feed(self, event: ModelResponseStreamEvent) -> Mapped:
        if isinstance(event, PartDeltaEvent):
            return self._delta(event)
        if isinstance(event, PartStartEvent):
            return self._start(event.index, event.part)
        if isinstance(event, PartEndEvent):
            return self._part_end(event.index, event.part)
        return []

    def end(self, response: ModelResponse) -> Mapped:
        """Everything that was held back, with the metadata of the final response."""
        mapped: Mapped = []
        self._refresh(response.parts)
        for index, opened in sorted(self._open.items()):
            if not opened.ended:
                mapped += self._close(opened, cut=response.finish_reason == "length" and index == max(self._open))
        for part in response.parts:
            if isinstance(part, TextPart) and part.citations:
                mapped += self._sources.cited(part.citations)
        return mapped

    def finish_reason(self, response: ModelResponse) -> FinishReason:
        """`tool-calls` comes from the parts: two of the providers say `stop` there."""
        match response.finish_reason:
            case "length":
                return FinishReason.length
            case "content_filter":
                return FinishReason.content_filter
            case "error":
                return FinishReason.error
            case "stop" | "tool_call" | None if self.has_calls:
                return FinishReason.tool_calls
            case "stop":
                return FinishReason.stop
            case _:
                return FinishReason.other

    def _start(self, index: int, part: ModelResponsePart) -> Mapped:
        if (again := self._open.get(index)) is not None:
            again.part = part
            return []
        mapped = self._close_before(part)
        match part:
            case TextPart():
                self._open[index] = opened = _Open(part, self._ids.text())
                mapped.append({"type": "text-start", "id": opened.id})
                mapped += _text(opened, "text", part.content)
            case ThinkingPart():
                self._open[index] = opened = _Open(part, self._ids.reasoning())
                mapped.append({"type": "reasoning-start", "id": opened.id})
                mapped += _text(opened, "reasoning", part.content)
            case BaseToolCallPart():
                self._open[index] = opened = _Open(part, self._ids.call(part.tool_call_id))
                mapped.append(chunks.tool_input_start(opened.id, clean_text(part.tool_name), **self._marks(part)))
                if isinstance(part.args, str):
                    mapped += _input(opened, part.args)
            case NativeToolReturnPart():
                self._open[index] = opened = _Open(part, part.tool_call_id)
                mapped += self._close(opened)
            case _:
                self._open[index] = _Open(part, "")
        return mapped

    def _delta(self, event: PartDeltaEvent) -> Mapped:
        opened = self._open.get(event.index)
        if opened is None:
            return []
        match event.delta:
            case TextPartDelta(content_delta=delta) if opened.ended and delta:
                self._open[event.index] = again = _Open(TextPart(""), self._ids.text())
                return [{"type": "text-start", "id": again.id}, *_text(again, "text", delta)]
            case _ if opened.ended:
                return []
            case TextPartDelta(content_delta=delta):
                return _text(opened, "text", delta)
            case ThinkingPartDelta(content_delta=str(delta)):
                return _text(opened, "reasoning", delta)
            case ToolCallPartDelta(args_delta=str(delta)):
                return _input(opened, delta)
        return []

    def _part_end(self, index: int, part: ModelResponsePart) -> Mapped:
        """The library saw another part begin. Calls that are whole are told at once; the others wait for the end."""
        opened = self._open.get(index)
        if opened is None or opened.ended:
            return []
        opened.part = part
        if isinstance(part, TextPart) and not self._hold_text:
            return self._close(opened)
        if isinstance(part, BaseToolCallPart) and part.args and parse_tool_input(part.args).error is None:
            return self._close(opened)
        return []

    def _close_before(self, part: ModelResponsePart) -> Mapped:
        """Reasoning ends where something else starts; files and compactions when they can no longer be replaced."""
        stays: tuple[type, ...] = (TextPart, BaseToolCallPart)
        if isinstance(part, ThinkingPart):
            stays = (*stays, ThinkingPart)
        due = [opened for opened in self._open.values() if not opened.ended and not isinstance(opened.part, stays)]
        if not due:
            return []
        self._refresh(self._parts())
        return [chunk for opened in due for chunk in self._close(opened)]

    def _refresh(self, parts: Sequence[ModelResponsePart]) -> None:
        """Signatures and details that came after the last event of a part are in the response only."""
        for index, opened in self._open.items():
            if not opened.ended and index < len(parts) and type(parts[index]) is type(opened.part):
                opened.part = parts[index]

    def _close(self, opened: _Open, *, cut: bool = False) -> Mapped:
        opened.ended = True
        part = opened.part
        match part:
            case TextPart():
                return self._text_end(opened, part)
            case ThinkingPart():
                return [
                    *_rest(opened, "reasoning"),
                    _with({"type": "reasoning-end", "id": opened.id}, write_metadata(part)),
                ]
            case BaseToolCallPart():
                return self._tool_input_end(opened, part, cut=cut)
            case NativeToolReturnPart():
                return self._output(part)
            case FilePart():
                return [GeneratedFile(part.content.data, part.content.media_type, write_metadata(part))]
            case CompactionPart():
                kind = f"{part.provider_name or 'pai'}.compaction"
                return [_with({"type": "custom", "kind": kind}, write_metadata(part, content=part.content))]
            case _:
                return []

    def _text_end(self, opened: _Open, part: TextPart) -> Mapped:
        mapped: Mapped = _rest(opened, "text")
        chunk = _with({"type": "text-end", "id": opened.id}, write_metadata(part))
        if part.citations:
            mapped += self._sources.cited(part.citations)
            chunk["citations"] = self._sources.citations(part.citations, part.content)
        return [*mapped, chunk]

    def _tool_input_end(self, opened: _Open, part: BaseToolCallPart[Any], *, cut: bool) -> Mapped:
        native = isinstance(part, NativeToolCallPart)
        self.has_calls = self.has_calls or not native
        name, marks = clean_text(part.tool_name), self._marks(part)
        renamed = part.tool_call_id if native and opened.id != part.tool_call_id else None
        metadata = write_metadata(part, callId=renamed)
        read = parse_tool_input(part.args)
        error = TRUNCATED if cut and not native and (read.error or not part.args) else read.error
        if error is None or native:
            return [_with(chunks.tool_input_available(opened.id, name, read.value, **marks), metadata)]
        value = read.value if read.error else ""
        return [_with(chunks.tool_input_error(opened.id, name, value, error, **marks), metadata)]

    def _output(self, part: NativeToolReturnPart) -> Mapped:
        content, told = plain_json(part.content), []
        call_id = self._ids.called(part.tool_call_id)
        if call_id is None:
            # The call is in an earlier message, whose turn was paused; a result needs a call beside it.
            call_id = self._ids.call(part.tool_call_id)
            marks = {"dynamic": True, "provider_executed": True}
            call = chunks.tool_input_available(call_id, clean_text(part.tool_name), {}, **marks)
            told = [_with(call, {"pai": {"resultOf": part.tool_call_id}})]
        chunk: Chunk = {"toolCallId": call_id, "providerExecuted": True, "dynamic": True}
        if part.outcome == "success":
            chunk = _with({"type": "tool-output-available", "output": content, **chunk}, write_metadata(part))
        else:
            error = clean_text(part.model_response_str(wrap_if_error=False)) or "The tool failed."
            metadata = write_metadata(part, outcome=part.outcome, content=content)
            chunk = _with({"type": "tool-output-error", "errorText": error, **chunk}, metadata)
        return [*told, chunk, *self._sources.found(part.tool_name, content)]

    def _marks(self, part: BaseToolCallPart[Any]) -> dict[str, bool]:
        """Tools that a provider runs itself are in no contract, so they are dynamic to everybody."""
        native = isinstance(part, NativeToolCallPart)
        return {"dynamic": native or part.tool_name in self._dynamic, "provider_executed": native}


def _text(opened: _Open, kind: str, delta: str) -> Mapped:
    cleaned = opened.cleaner.feed(delta) if delta else ""
    return [{"type": f"{kind}-delta", "id": opened.id, "delta": cleaned}] if cleaned else []


def _rest(opened: _Open, kind: str) -> Mapped:
    held = opened.cleaner.flush()
    return [{"type": f"{kind}-delta", "id": opened.id, "delta": held}] if held else []


def _input(opened: _Open, delta: str) -> Mapped:
    cleaned = opened.cleaner.feed(delta)
    return [{"type": "tool-input-delta", "toolCallId": opened.id, "inputTextDelta": cleaned}] if cleaned else []


def _with(chunk: Chunk, metadata: Mapping[str, Any] | None) -> Chunk:
    return {**chunk, "providerMetadata": metadata} if metadata else chunk
