"""A fold that was exported in mid-part and goes on elsewhere."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai.fold import Fold, FoldError
from pai.protocol.json import dumps, loads

IDS = st.sampled_from(["a", "b"])
CALLS = st.sampled_from(["c1", "c2"])
METADATA = st.sampled_from([{"a": {"b": 1}}, {"a": {"c": [2]}}, {"d": None}])


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


NOTHING_MORE: st.SearchStrategy[dict[str, Any]] = st.just({})


def chunk(kind: str, *, maybe: st.SearchStrategy[dict[str, Any]] = NOTHING_MORE, **keys: Any) -> Any:
    required = st.fixed_dictionaries({"type": st.just(kind), **keys})
    return st.tuples(required, maybe).map(lambda both: {**both[0], **both[1]})


CALL_KEYS = optional(
    dynamic=st.booleans(),
    title=st.just("T"),
    toolMetadata=st.just({"m": 1}),
    providerExecuted=st.booleans(),
    providerMetadata=st.just({"p": {"k": 1}}),
)
TEXT = st.sampled_from(["h", "é", "", "😀", "long " * 20])
JSON_PIECES = st.sampled_from(['{"a":', '"x', '"', "}", "[1,", "tr", "\\ud83d", "\\ude00", ",", '"k":', "-1.5e"])
CHUNKS = st.one_of(
    *(chunk(f"{kind}-start", id=IDS) for kind in ("text", "reasoning")),
    *(chunk(f"{kind}-delta", id=IDS, delta=TEXT) for kind in ("text", "reasoning") for _ in range(3)),
    *(chunk(f"{kind}-end", id=IDS) for kind in ("text", "reasoning")),
    chunk(
        "tool-input-start",
        toolCallId=CALLS,
        toolName=st.just("t"),
        maybe=st.tuples(CALL_KEYS, optional(inputEncoding=st.sampled_from(["json", "text"]))).map(
            lambda both: {**both[0], **both[1]}
        ),
    ),
    *(chunk("tool-input-delta", toolCallId=CALLS, inputTextDelta=JSON_PIECES) for _ in range(4)),
    chunk("tool-input-available", toolCallId=CALLS, toolName=st.just("u"), input=st.just({"v": 1}), maybe=CALL_KEYS),
    chunk("tool-output-available", toolCallId=CALLS, output=st.just([1]), maybe=optional(preliminary=st.booleans())),
    chunk("tool-output-error", toolCallId=CALLS, errorText=st.just("boom")),
    chunk("tool-approval-request", toolCallId=CALLS, approvalId=IDS),
    chunk("tool-approval-response", approvalId=IDS, approved=st.booleans()),
    chunk("tool-output-denied", toolCallId=CALLS),
    chunk("data-x", data=st.integers(0, 9), maybe=optional(id=IDS, transient=st.booleans())),
    chunk("source-url", sourceId=IDS, url=st.just("https://example.com")),
    chunk("message-metadata", messageMetadata=METADATA),
    chunk("start-step"),
    chunk("finish-step"),
    chunk("reset-step"),
    chunk("start", messageId=st.sampled_from(["m1", "m1", "m1", "m2"])),
)


def applicable(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chunks without those that do not fit where they are."""
    fold, fitting = Fold(), []
    for each in chunks:
        try:
            fold.apply(each)
        except FoldError:
            continue
        fitting.append(each)
    return fitting


def tool_input(call_id: str, *pieces: str, **start: Any) -> list[dict[str, Any]]:
    return [
        {"type": "tool-input-start", "toolCallId": call_id, "toolName": "t", **start},
        *({"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": piece} for piece in pieces),
    ]


LONG: list[dict[str, Any]] = [
    {"type": "start", "messageId": "m", "messageMetadata": {"a": {"b": 1}}},
    {"type": "start-step"},
    {"type": "reasoning-start", "id": "x"},
    {"type": "text-start", "id": "x", "providerMetadata": {"p": {"k": 1}}},
    {"type": "reasoning-delta", "id": "x", "delta": "think"},
    {"type": "text-delta", "id": "x", "delta": "one "},
    {"type": "text-delta", "id": "x", "delta": "two", "providerMetadata": {"p": {"k": 2}}},
    {"type": "reasoning-end", "id": "x"},
    *tool_input("json", '{"a":', "[1", ",2]", "}"),
    *tool_input("text", "print(", '"hi")', inputEncoding="text", title="Code", toolMetadata={"m": 1}),
    *tool_input("dynamic", "[tr", dynamic=True, providerExecuted=True),
    {"type": "text-delta", "id": "x", "delta": " three"},
    {"type": "start-step"},
    {"type": "tool-input-delta", "toolCallId": "dynamic", "inputTextDelta": "ue"},
    {"type": "tool-input-delta", "toolCallId": "dynamic", "inputTextDelta": "]"},
    {"type": "tool-input-delta", "toolCallId": "json", "inputTextDelta": " "},
    {"type": "tool-input-available", "toolCallId": "json", "toolName": "t", "input": {"a": [1, 2]}},
    {"type": "tool-approval-request", "toolCallId": "text", "approvalId": "p"},
    {"type": "tool-approval-response", "approvalId": "p", "approved": True},
    {"type": "tool-output-available", "toolCallId": "text", "output": 1, "preliminary": True},
    {"type": "text-delta", "id": "x", "delta": " four"},
    {"type": "text-end", "id": "x"},
    {"type": "reset-step"},
    {"type": "text-start", "id": "y"},
    {"type": "text-delta", "id": "y", "delta": "again"},
    {"type": "finish", "finishReason": "stop", "messageMetadata": {"a": {"c": 2}}},
]


@pytest.mark.parametrize("cut", range(len(LONG) + 1))
def test_a_long_message_cut_at_any_chunk_goes_on_mid_part(cut: int) -> None:
    straight, first = Fold(), Fold()
    for each in LONG[:cut]:
        straight.apply(each)
        first.apply(each)
    second = Fold(loads(dumps(first.message)), loads(dumps(first.folding())))
    assert second.folding() == straight.folding()

    for each in LONG[cut:]:
        assert second.apply(each) == straight.apply(each)
        assert second.message == straight.message


@settings(max_examples=150, deadline=None)
@given(st.lists(CHUNKS, min_size=1, max_size=40).map(applicable), st.data())
def test_a_fold_cut_anywhere_and_restored_from_json_goes_on_as_if_it_had_not_been(
    chunks: list[dict[str, Any]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(chunks)))
    straight, first = Fold(), Fold()
    for each in chunks[:cut]:
        straight.apply(each)
        first.apply(each)
        if data.draw(st.booleans(), label="look"):
            assert first.message["parts"] is not None
    exported, folding = loads(dumps(first.message)), loads(dumps(first.folding()))
    second = Fold(exported, folding)

    for each in chunks[cut:]:
        assert second.apply(each) == straight.apply(each)
        if data.draw(st.booleans(), label="compare"):
            assert second.message == straight.message
    assert second.message == straight.message
    assert second.folding() == straight.folding()


@settings(max_examples=150, deadline=None)
@given(st.lists(CHUNKS, max_size=40))
def test_a_chunk_that_does_not_fit_changes_nothing(chunks: list[dict[str, Any]]) -> None:
    fold = Fold()
    for each in chunks:
        message, folding = dumps(fold.message), dumps(fold.folding())
        try:
            fold.apply(each)
        except FoldError:
            assert (dumps(fold.message), dumps(fold.folding())) == (message, folding)


def test_the_folding_state_names_open_parts_by_index_and_raw_input_so_far() -> None:
    fold = Fold()
    for each in [
        {"type": "start", "messageId": "m"},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "so far"},
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "search", "dynamic": True, "title": "Search"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"q":'},
    ]:
        fold.apply(each)

    assert fold.folding() == {
        "text": {"t": 2},
        "reasoning": {"r": 1},
        "tools": {"c": {"text": '{"q":', "toolName": "search", "dynamic": True, "title": "Search"}},
    }


def test_without_a_folding_state_streaming_tool_inputs_are_open_and_streaming_texts_are_not() -> None:
    message = {
        "id": "m",
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "old", "state": "streaming"},
            {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "rawInput": '{"q":'},
        ],
    }

    assert Fold(message).folding() == {
        "text": {},
        "reasoning": {},
        "tools": {"c": {"text": '{"q":', "toolName": "search", "dynamic": False}},
    }


@pytest.mark.parametrize("index", [-1, 0, 1, 2])
def test_a_folding_state_that_does_not_fit_the_message_is_refused(index: int) -> None:
    message = {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "reasoning", "text": ""}]}

    with pytest.raises(FoldError, match="does not fit"):
        Fold(message, {"text": {"t": index}, "reasoning": {}, "tools": {}})
