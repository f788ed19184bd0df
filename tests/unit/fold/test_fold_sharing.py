"""What applying a chunk may touch, and what stays the same object."""

import sys
from typing import Any

import pytest

from pai.fold import Fold, FoldError


def folded(*chunks: dict[str, Any], **options: Any) -> Fold:
    fold = Fold(**options)
    for chunk in chunks:
        fold.apply(chunk)
    return fold


START = ({"type": "start", "messageId": "m"}, {"type": "start-step"})
TEXT = {"type": "text-start", "id": "t"}


def delta(text: str, text_id: str = "t") -> dict[str, Any]:
    return {"type": "text-delta", "id": text_id, "delta": text}


class Unscannable(list[Any]):
    """Parts that may be looked up and replaced one by one, and appended to."""

    def __iter__(self) -> Any:
        raise AssertionError("the parts are iterated over")

    def __contains__(self, item: object) -> bool:
        raise AssertionError("the parts are searched")

    def __getitem__(self, index: Any) -> Any:
        assert not isinstance(index, slice), "the parts are copied"
        return super().__getitem__(index)

    def index(self, *arguments: Any) -> int:
        raise AssertionError("the parts are searched")


def operations(fold: Fold, chunk: dict[str, Any]) -> int:
    """Bytecode instructions that one chunk takes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        fold.apply(chunk)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "chunk",
    [
        delta("x"),
        {"type": "tool-input-delta", "toolCallId": "open", "inputTextDelta": "1,"},
        {"type": "data-x", "id": "known", "data": 1},
        {"type": "data-x", "id": "new", "data": 1},
        {"type": "tool-output-available", "toolCallId": "early", "output": 1},
        {"type": "tool-output-error", "toolCallId": "late", "errorText": "no"},
        {"type": "tool-approval-request", "toolCallId": "late", "approvalId": "again"},
        {"type": "tool-approval-response", "approvalId": "asked", "approved": True},
        {"type": "tool-input-available", "toolCallId": "late", "toolName": "t", "input": {}},
        {"type": "tool-input-error", "toolCallId": "open", "toolName": "t", "input": {}, "errorText": "no"},
        {"type": "message-metadata", "messageMetadata": {"a": 1}},
        {"type": "start-step"},
        {"type": "text-end", "id": "t"},
    ],
    ids=lambda chunk: f"{chunk['type']}-{chunk.get('toolCallId', chunk.get('id', ''))}",
)
def test_a_chunk_costs_the_same_in_a_message_of_ten_parts_and_of_ten_thousand(chunk: dict[str, Any]) -> None:
    def grown(size: int) -> Fold:
        fold = folded(
            *START,
            {"type": "data-x", "id": "known", "data": 0},
            {"type": "tool-input-available", "toolCallId": "early", "toolName": "t", "input": {}},
            *({"type": "source-url", "sourceId": str(number), "url": "u"} for number in range(size)),
            *({"type": "data-y", "id": str(number), "data": 0} for number in range(size)),
            *(
                {"type": "tool-input-available", "toolCallId": str(number), "toolName": "t", "input": {}}
                for number in range(size)
            ),
            {"type": "tool-input-available", "toolCallId": "late", "toolName": "t", "input": {}},
            {"type": "tool-approval-request", "toolCallId": "late", "approvalId": "asked"},
            {"type": "tool-input-start", "toolCallId": "open", "toolName": "t"},
            {"type": "tool-input-delta", "toolCallId": "open", "inputTextDelta": "["},
            TEXT,
            delta("x"),
        )
        fold._parts.items = Unscannable(fold._parts.items)
        return fold

    assert operations(grown(3), chunk) == operations(grown(3_333), chunk)


def test_a_delta_costs_the_same_after_ten_deltas_and_after_a_hundred_thousand() -> None:
    few = folded(*START, TEXT, *(delta("word ") for _ in range(10)))
    many = folded(*START, TEXT, *(delta("word ") for _ in range(100_000)))

    assert operations(few, delta("x")) == operations(many, delta("x"))
    assert len(many.message["parts"][1]["text"]) == 500_001


def test_a_part_that_changed_is_a_new_object_and_the_others_are_the_same() -> None:
    fold = folded(*START, TEXT, delta("a"), {"type": "data-x", "data": {"big": 1}})
    before = fold.message
    fold.apply(delta("b"))
    after = fold.message

    assert [part["text"] for part in (before["parts"][1], after["parts"][1])] == ["a", "ab"]
    assert after["parts"][0] is before["parts"][0]
    assert after["parts"][2] is before["parts"][2]


def test_looking_twice_gives_the_same_message() -> None:
    fold = folded(*START, TEXT, delta("a"))

    assert fold.message is fold.message


def test_a_message_that_was_looked_at_never_changes() -> None:
    fold = folded(*START, {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"})
    seen = []
    for piece in ['{"a":', "[1,", "2]", "}"]:
        fold.apply({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece})
        seen.append(fold.message)
    fold.apply({"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {"a": [1, 2]}})
    fold.apply({"type": "tool-output-available", "toolCallId": "c", "output": "done"})

    assert [message["parts"][1].get("input") for message in seen] == [{}, {"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}]
    assert {message["parts"][1]["state"] for message in seen} == {"input-streaming"}


def test_the_message_to_continue_is_not_changed() -> None:
    parts = [{"type": "text", "text": "old", "state": "done"}, {"type": "data-x", "id": "d", "data": 1}]
    message = {"id": "m", "role": "assistant", "metadata": {"a": {"b": 1}}, "parts": list(parts)}
    fold = Fold(message)
    fold.apply({"type": "data-x", "id": "d", "data": 2})
    fold.apply({"type": "message-metadata", "messageMetadata": {"a": {"c": 2}}})
    fold.apply(TEXT)

    assert message == {"id": "m", "role": "assistant", "metadata": {"a": {"b": 1}}, "parts": parts}
    assert fold.message["metadata"] == {"a": {"b": 1, "c": 2}}
    assert fold.message["parts"][0] is parts[0]


def test_half_an_escape_in_a_tool_input_never_makes_a_message_that_cannot_be_stored() -> None:
    fold = folded(
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"e":"\\ud83d'},
    )
    half = fold.message["parts"][0]["input"]
    fold.apply({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '\\ude00"}'})

    assert (half, fold.message["parts"][0]["input"]) == ({"e": "\ufffd"}, {"e": "😀"})


@pytest.mark.parametrize("text", ["[" * 5_000, '{"a":' * 300, '{"n":123456789012345678901'])
def test_a_partial_input_that_cannot_be_stored_is_shown_as_raw_input_only(text: str) -> None:
    fold = folded(
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": text},
    )

    part = fold.message["parts"][0]
    assert (part["rawInput"], "input" in part) == (text, False)


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        "text",
        [],
        {},
        {"type": None},
        {"type": 7},
        {"type": "text-start"},
        {"type": "text-delta", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": None},
        {"type": "text-end", "id": []},
        {"type": "tool-input-start", "toolCallId": "c"},
        {"type": "tool-input-delta", "toolCallId": "open", "inputTextDelta": 1},
        {"type": "tool-input-start", "toolCallId": {}, "toolName": "t"},
        {"type": "tool-output-available"},
        {"type": "tool-approval-request", "toolCallId": "open"},
        {"type": "data-x", "data": 1, "id": []},
        {"type": "data-x", "id": "d"},
    ],
    ids=repr,
)
def test_a_chunk_without_what_its_type_needs_is_a_typed_error_and_changes_nothing(chunk: Any) -> None:
    fold = folded(
        *START,
        TEXT,
        {"type": "tool-input-start", "toolCallId": "open", "toolName": "t"},
        {"type": "data-x", "id": "d", "data": 0},
    )
    before, folding = fold.message, fold.folding()

    with pytest.raises(FoldError):
        fold.apply(chunk)
    assert (fold.message, fold.folding()) == (before, folding)


def test_data_chunks_are_handed_over_once_applied_and_transient_ones_are_not_stored() -> None:
    seen: list[tuple[Any, int]] = []
    fold = Fold(on_data=lambda chunk: seen.append((chunk["data"], fold.part_count)))
    shown = [
        fold.apply(chunk)
        for chunk in (
            {"type": "data-x", "id": "d", "data": 1},
            {"type": "data-x", "id": "d", "data": 2, "transient": True},
            {"type": "data-x", "id": "d", "data": 3},
        )
    ]

    assert seen == [(1, 1), (2, 1), (3, 1)]
    assert shown == [True, False, True]
    assert fold.message["parts"] == [{"type": "data-x", "id": "d", "data": 3}]


def test_an_error_of_the_one_who_is_handed_data_is_not_an_error_of_the_chunk() -> None:
    fold = Fold(on_data=lambda chunk: chunk["missing"])

    with pytest.raises(KeyError, match="missing"):
        fold.apply({"type": "data-x", "data": 1})
    assert fold.message["parts"] == [{"type": "data-x", "data": 1}]


def test_the_ending_of_a_message_ends_all_that_is_open_in_order() -> None:
    fold = folded(
        *START,
        {"type": "reasoning-start", "id": "b"},
        TEXT,
        {"type": "text-start", "id": "a"},
        {"type": "text-end", "id": "a"},
    )

    assert fold.ending() == [{"type": "reasoning-end", "id": "b"}, {"type": "text-end", "id": "t"}]
    for chunk in fold.ending():
        fold.apply(chunk)
    assert {part.get("state") for part in fold.message["parts"]} == {None, "done"}
    assert fold.ending() == []


def test_the_reason_of_the_finish_is_remembered_and_a_new_message_forgets_it() -> None:
    fold = folded(*START, {"type": "finish", "finishReason": "length"})
    reasons = [fold.finish_reason]
    fold.apply({"type": "start", "messageId": "other"})

    assert [*reasons, fold.finish_reason] == ["length", None]


def test_an_approval_that_was_replaced_can_no_longer_be_answered() -> None:
    fold = folded(
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
        {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "first"},
        {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "second"},
    )

    with pytest.raises(FoldError, match='No tool invocation found for approval ID "first"') as caught:
        fold.apply({"type": "tool-approval-response", "approvalId": "first", "approved": True})
    assert caught.value.wire()["chunkId"] == "first"
    fold.apply({"type": "tool-approval-response", "approvalId": "second", "approved": True})
    assert fold.message["parts"][0]["approval"] == {"id": "second", "approved": True}
