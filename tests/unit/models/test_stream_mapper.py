"""What chunks a stream becomes: the rules that hold for all providers, on the events of the library below."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    Citation,
    CompactionPart,
    ContentCitationAnchor,
    FilePart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    WebCitationSource,
)

from pai.models import FinishReason, ToolDefinition
from pai.models.mapper import GeneratedFile, StreamMapper
from pai.protocol.chunks import validate_chunk
from support.model_calls import of_type, stored, text_of, types

TOOL = ToolDefinition(name="t", description="", input_schema={})


def start(index: int, part: Any) -> PartStartEvent:
    return PartStartEvent(index=index, part=part)


def text(index: int, delta: str) -> PartDeltaEvent:
    return PartDeltaEvent(index=index, delta=TextPartDelta(delta))


def thought(index: int, delta: str) -> PartDeltaEvent:
    return PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=delta))


def args(index: int, delta: str) -> PartDeltaEvent:
    return PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=delta))


def end(index: int, part: Any) -> PartEndEvent:
    return PartEndEvent(index=index, part=part)


def mapped(
    events: Sequence[Any], parts: Sequence[Any], finish: Any = "stop", **options: Any
) -> tuple[list[Any], StreamMapper]:
    mapper = StreamMapper(parts=lambda: parts, **{"tools": [TOOL], **options})
    chunks = [chunk for event in events for chunk in mapper.feed(event)]
    chunks += mapper.end(ModelResponse(parts=parts, finish_reason=finish))
    for chunk in chunks:
        if not isinstance(chunk, GeneratedFile):
            validate_chunk(chunk)
    return chunks, mapper


def test_reasoning_ends_late_and_with_the_metadata_of_the_final_response() -> None:
    sealed = ThinkingPart("ab", id="rs", signature="seal", provider_name="openai", provider_details={"x": 1})
    events = [start(0, ThinkingPart("a")), thought(0, "b"), end(0, ThinkingPart("ab"))]
    mapper = StreamMapper(parts=lambda: [sealed])
    assert "reasoning-end" not in types([chunk for event in events for chunk in mapper.feed(event)])
    chunks = mapper.feed(start(1, TextPart("so")))
    assert types(chunks) == ["reasoning-end", "text-start", "text-delta"]
    assert chunks[0]["providerMetadata"] == {"openai": {"id": "rs", "signature": "seal", "details": {"x": 1}}}


def test_consecutive_reasoning_parts_end_together() -> None:
    parts = [ThinkingPart("a"), ThinkingPart("b")]
    events = [start(0, parts[0]), end(0, parts[0]), start(1, parts[1])]
    chunks, _ = mapped(events, parts)
    assert types(chunks)[-2:] == ["reasoning-end", "reasoning-end"]
    assert len({chunk["id"] for chunk in chunks}) == 2


def test_every_text_and_reasoning_part_is_ended() -> None:
    parts = [ThinkingPart("a"), TextPart("b"), TextPart("c")]
    chunks, _ = mapped([start(index, part) for index, part in enumerate(parts)], parts)
    assert all(part["state"] == "done" for part in stored(chunks)["parts"] if part["type"] in ("text", "reasoning"))


@pytest.mark.parametrize("arguments", ["", "{}", '{"a": {"b": [1, 2.5, null]}}', None, {"a": 1}])
def test_arguments_that_are_an_object_are_available(arguments: Any) -> None:
    part = ToolCallPart("t", arguments, "c")
    chunks, mapper = mapped([start(0, part)], [part])
    assert types(chunks)[-1] == "tool-input-available"
    assert mapper.finish_reason(ModelResponse(parts=[part], finish_reason="stop")) == FinishReason.tool_calls


@pytest.mark.parametrize(
    "arguments", ["null", "[1]", '"x"', "1", "true", '{"a": 1} {"b": 2}', '{"a": ', "{'a': 1}", '{"a": NaN}', "x"]
)
def test_arguments_that_are_no_object_are_an_input_error_and_a_settled_call(arguments: str) -> None:
    part = ToolCallPart("t", arguments, "c")
    chunks, _ = mapped([start(0, part)], [part])
    (error,) = of_type(chunks, "tool-input-error")
    assert error["input"] == arguments
    assert stored(chunks)["parts"][-1]["state"] == "output-error"


def test_a_call_is_told_as_soon_as_it_is_whole_and_an_unfinished_one_at_the_end() -> None:
    first, second = ToolCallPart("t", '{"a":1}', "c1"), ToolCallPart("t", '{"b":2}', "c2")
    mapper = StreamMapper(parts=lambda: [first, second])
    for event in (start(0, ToolCallPart("t", None, "c1")), args(0, '{"a":1}')):
        mapper.feed(event)
    assert types(mapper.feed(end(0, first))) == ["tool-input-available"]
    mapper.feed(start(1, ToolCallPart("t", '{"b":', "c2")))
    assert mapper.feed(end(1, ToolCallPart("t", '{"b":', "c2"))) == []
    assert types(mapper.feed(args(1, "2}"))) == ["tool-input-delta"]
    chunks = mapper.end(ModelResponse(parts=[first, second]))
    assert [chunk["input"] for chunk in chunks] == [{"b": 2}]


def test_an_empty_call_at_the_output_limit_was_cut_off() -> None:
    part = ToolCallPart("t", "", "c")
    chunks, mapper = mapped([start(0, part)], [part], finish="length")
    assert types(chunks)[-1] == "tool-input-error"
    assert mapper.finish_reason(ModelResponse(parts=[part], finish_reason="length")) == FinishReason.length


def test_a_whole_call_before_the_output_limit_is_kept() -> None:
    whole, cut = ToolCallPart("t", '{"a":1}', "c1"), ToolCallPart("t", '{"a":', "c2")
    chunks, _ = mapped([start(0, whole), end(0, whole), start(1, cut)], [whole, cut], finish="length")
    assert [chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-available")] == ["c1"]
    assert [chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-error")] == ["c2"]


def test_a_pair_of_surrogates_that_was_split_over_two_deltas_is_joined() -> None:
    parts = [TextPart("\ud83d\ude00")]
    chunks, _ = mapped([start(0, TextPart("\ud83d")), text(0, "\ude00!")], parts)
    assert text_of(chunks) == "😀!"


def test_nul_and_lone_surrogates_are_replaced_in_everything_that_is_streamed() -> None:
    call = ToolCallPart("t", '{"a":"\\u0000\\ud800"}', "c")
    parts = [ThinkingPart("\0"), TextPart("a\0b\ud800"), call]
    chunks, _ = mapped([start(index, part) for index, part in enumerate(parts)], parts)
    assert text_of(chunks, "reasoning") == "\ufffd"
    assert text_of(chunks) == "a\ufffdb\ufffd"
    assert of_type(chunks, "tool-input-available")[0]["input"] == {"a": "\ufffd\ufffd"}


def test_keys_that_reach_a_prototype_are_an_input_error() -> None:
    for arguments in ('{"__proto__": 1}', '{"a": [{"constructor": {"prototype": 1}}]}'):
        part = ToolCallPart("t", arguments, "c")
        chunks, _ = mapped([start(0, part)], [part])
        assert types(chunks)[-1] == "tool-input-error"


def test_ids_of_calls_and_reasoning_are_unique_within_the_run() -> None:
    parts = [ThinkingPart("a"), ToolCallPart("t", "{}", "c"), ToolCallPart("t", "{}", "c")]
    used = frozenset({"c", "c-2", "reasoning-1"})
    chunks, _ = mapped([start(index, part) for index, part in enumerate(parts)], parts, used_ids=used)
    assert [chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-available")] == ["c-3", "c-4"]
    assert of_type(chunks, "reasoning-start")[0]["id"] == "reasoning-2"


def test_a_call_id_is_printable_and_of_bearable_length() -> None:
    part = ToolCallPart("t", "{}", "\n" + "x" * 500)
    chunks, _ = mapped([start(0, part)], [part])
    assert chunks[0]["toolCallId"] == "x" * 180


def test_a_tool_of_the_provider_is_settled_and_asks_for_nothing() -> None:
    call = NativeToolCallPart("web_search", '{"query":"tea"}', "s", provider_name="anthropic")
    result = NativeToolReturnPart(
        "web_search", [{"url": "https://a.example", "title": "A"}], "s", provider_name="anthropic"
    )
    chunks, mapper = mapped([start(0, call), end(0, call), start(1, result)], [call, result])
    assert types(chunks)[-3:] == ["tool-input-available", "tool-output-available", "source-url"]
    assert all(chunk["providerExecuted"] for chunk in chunks if "toolCallId" in chunk and "inputTextDelta" not in chunk)
    assert mapper.finish_reason(ModelResponse(parts=[], finish_reason="stop")) == FinishReason.stop


def test_each_source_is_told_once_however_often_it_is_found_and_cited() -> None:
    pages = [{"url": "https://a.example", "title": "A"}, {"url": "https://a.example"}]
    call = NativeToolCallPart("web_search", "{}", "s")
    result = NativeToolReturnPart("web_search", pages, "s")
    cited = Citation([WebCitationSource("https://a.example")], anchor=ContentCitationAnchor(start=1, end=3))
    answer = TextPart("😀bcd", citations=[cited, cited])
    chunks, _ = mapped([start(0, call), start(1, result), start(2, answer), end(2, answer)], [call, result, answer])
    assert len(of_type(chunks, "source-url")) == 1
    citations = of_type(chunks, "text-end")[0]["citations"]
    assert len(citations) == 2
    assert (citations[0]["startIndex"], citations[0]["endIndex"]) == (2, 4), "positions count UTF-16 units"
    assert citations[0]["source"]["id"] == of_type(chunks, "source-url")[0]["sourceId"]


def test_texts_stay_open_where_citations_come_last() -> None:
    cited = TextPart("abc", citations=[Citation([WebCitationSource("https://a.example")])])
    call = ToolCallPart("t", "{}", "c")
    events = [start(0, TextPart("abc")), end(0, TextPart("abc")), start(1, call)]
    chunks, _ = mapped(events, [cited, call], hold_text=True)
    assert types(chunks)[-3:] == ["source-url", "text-end", "tool-input-available"]
    assert of_type(chunks, "text-end")[0]["citations"]


def test_text_for_a_part_that_was_ended_is_not_lost() -> None:
    call = ToolCallPart("t", "{}", "c")
    events = [start(0, TextPart("a")), end(0, TextPart("a")), start(1, call), text(0, "b")]
    chunks, _ = mapped(events, [TextPart("ab"), call])
    assert text_of(chunks) == "ab"
    assert [part["text"] for part in stored(chunks)["parts"] if part["type"] == "text"] == ["a", "b"]


def test_only_the_last_version_of_a_generated_file_counts() -> None:
    drafts = [
        FilePart(BinaryContent(b"1", media_type="image/png")),
        FilePart(BinaryContent(b"2", media_type="image/png")),
    ]
    events = [start(0, drafts[0]), start(0, drafts[1]), start(1, TextPart("done"))]
    chunks, _ = mapped(events, [drafts[1], TextPart("done")])
    assert [chunk.data for chunk in chunks if isinstance(chunk, GeneratedFile)] == [b"2"]


def test_a_compaction_becomes_a_custom_part_with_all_that_it_needs() -> None:
    part = CompactionPart("summary", provider_name="anthropic", provider_details={"encrypted": "x"})
    chunks, _ = mapped([start(0, part)], [part])
    (custom,) = of_type(chunks, "custom")
    assert custom["kind"] == "anthropic.compaction"
    assert custom["providerMetadata"]["pai"] == {"content": "summary"}


def test_tools_of_a_request_are_dynamic() -> None:
    part = ToolCallPart("d", "{}", "c")
    chunks, _ = mapped(
        [start(0, part)], [part], tools=[ToolDefinition(name="d", description="", input_schema={}, dynamic=True)]
    )
    assert [chunk["dynamic"] for chunk in chunks if "toolName" in chunk] == [True, True]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("stop", FinishReason.stop),
        ("length", FinishReason.length),
        ("content_filter", FinishReason.content_filter),
        ("error", FinishReason.error),
        ("tool_call", FinishReason.other),
        (None, FinishReason.other),
    ],
)
def test_without_calls_the_finish_reason_is_the_providers(given: Any, told: FinishReason) -> None:
    _, mapper = mapped([start(0, TextPart("a"))], [TextPart("a")])
    assert mapper.finish_reason(ModelResponse(parts=[], finish_reason=given)) == told
