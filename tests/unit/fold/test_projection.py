"""Reserved parts joined onto their owners."""

import json
from typing import Any

import pytest

from pai.fold import Fold, Projection, project
from pai.fold.reserved import (
    SuspensionState,
    attachment,
    is_reserved,
    reasoning_summary,
    resolved_suspension,
    suspension,
    tool_data,
    tool_error,
)

CREATED, RESOLVED = "2026-01-31T09:00:00.000Z", "2026-01-31T09:05:00.000Z"


def call(call_id: str = "c", state: str = "input-available", **more: Any) -> dict[str, Any]:
    return {"type": "tool-publish", "toolCallId": call_id, "state": state, "input": {}, **more}


def asked(suspension_id: str = "s1", call_id: str = "c") -> dict[str, Any]:
    return suspension(suspension_id, tool_call_id=call_id, name="approval", input={"n": 1}, created_at=CREATED)


def answered(part: dict[str, Any], state: SuspensionState, **outcome: Any) -> dict[str, Any]:
    return resolved_suspension(part, state=state, resolved_at=RESOLVED, **outcome)


def message(*parts: dict[str, Any], message_id: str = "m") -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "metadata": {"pai": {}}, "parts": list(parts)}


def joined(part: dict[str, Any], **sidecars: Any) -> dict[str, Any]:
    return {**part, "data": {}, "suspensions": [], "pendingSuspension": None, **sidecars}


PENDING = {"id": "s1", "name": "approval", "input": {"n": 1}, "state": "pending", "createdAt": CREATED}
RESUMED = {**PENDING, "state": "resumed", "resume": None, "resolvedAt": RESOLVED}
CANCELLED = {**PENDING, "state": "cancelled", "reason": "later", "resolvedAt": RESOLVED}
TEXT = {"type": "text", "text": "hello", "state": "done"}
REASONING = {"type": "reasoning", "id": "r", "text": "hm", "state": "done"}
DYNAMIC = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "input-available", "input": 1}


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([TEXT, {"type": "data-chart", "data": 1}], [TEXT, {"type": "data-chart", "data": 1}], id="native"),
        pytest.param([call()], [joined(call())], id="a tool part always has its sidecars"),
        pytest.param([DYNAMIC], [joined(DYNAMIC)], id="a dynamic one too"),
        pytest.param(
            [call(), asked()], [joined(call(), suspensions=[PENDING], pendingSuspension=PENDING)], id="pending"
        ),
        pytest.param(
            [call(), answered(asked(), SuspensionState.RESUMED, resume=None)],
            [joined(call(), suspensions=[RESUMED])],
            id="resumed with null",
        ),
        pytest.param(
            [call(), answered(asked(), SuspensionState.CANCELLED, reason="later")],
            [joined(call(), suspensions=[CANCELLED])],
            id="cancelled",
        ),
        pytest.param(
            [call(), answered(asked(), SuspensionState.RESUMED, resume=None), asked("s2")],
            [
                joined(
                    call(),
                    suspensions=[RESUMED, {**PENDING, "id": "s2"}],
                    pendingSuspension={**PENDING, "id": "s2"},
                )
            ],
            id="the second of two episodes is pending",
        ),
        pytest.param(
            [call("a"), call("b"), tool_data("b", "progress", {"percent": 10}), tool_data("b", "note", None)],
            [joined(call("a")), joined(call("b"), data={"progress": {"percent": 10}, "note": None})],
            id="tool data by name",
        ),
        pytest.param(
            [call(state="output-error"), tool_error("c", "No", code="DENIED", detail={"why": None})],
            [joined(call(state="output-error"), error={"message": "No", "code": "DENIED", "detail": {"why": None}})],
            id="error",
        ),
        pytest.param(
            [REASONING, TEXT, reasoning_summary("r", "Thought about it")],
            [{**REASONING, "summary": "Thought about it"}, TEXT],
            id="reasoning summary",
        ),
        pytest.param(
            [attachment("a1", file_id="f1", media_type="image/png", filename="x.png", byte_size=0, metadata={})],
            [
                {
                    "type": "attachment",
                    "id": "a1",
                    "fileId": "f1",
                    "mediaType": "image/png",
                    "filename": "x.png",
                    "byteSize": 0,
                    "metadata": {},
                }
            ],
            id="attachment",
        ),
        pytest.param(
            [attachment("a1", file_id="f1", media_type="image/png"), TEXT],
            [{"type": "attachment", "id": "a1", "fileId": "f1", "mediaType": "image/png"}, TEXT],
            id="attachment without what is optional",
        ),
        pytest.param(
            [call("new"), asked(call_id="gone"), tool_data("gone", "x", 1), reasoning_summary("gone", "s")],
            [joined(call("new"))],
            id="sidecars without an owner go",
        ),
        pytest.param(
            [
                call(),
                {"type": "data-pai-future", "id": "c", "data": {"toolCallId": "c"}},
                {"type": "data-pai-suspension", "id": "c", "data": None},
                {"type": "data-pai-suspension", "id": "c", "data": {"toolCallId": ["c"], "name": "n", "state": "x"}},
                {"type": "data-pai-tool-data", "id": "c", "data": {"toolCallId": "c"}},
                {"type": "data-pai-tool-error", "data": {"toolCallId": "c", "message": "m"}},
                {"type": "data-pai-attachment", "id": "a", "data": {"fileId": "f"}},
            ],
            [joined(call())],
            id="what is not understood goes",
        ),
        pytest.param(
            [call("c"), {"type": "step-start"}, call("c"), asked()],
            [
                joined(call("c")),
                {"type": "step-start"},
                joined(call("c"), suspensions=[PENDING], pendingSuspension=PENDING),
            ],
            id="of several owners it is the last",
        ),
    ],
)
def test_reserved_parts_are_joined_onto_their_owners(parts: list[Any], shown: list[Any]) -> None:
    given = message(*parts)
    before = json.dumps(given)

    assert project(given) == message(*shown)
    assert json.dumps(given) == before


def test_reserved_types_are_those_with_the_prefix() -> None:
    assert [is_reserved(kind) for kind in ("data-pai-x", "data-pai", "data-paint", "text")] == [
        True,
        False,
        False,
        False,
    ]


def test_reserved_chunks_fold_into_the_parts_that_the_projection_joins() -> None:
    fold = Fold()
    for chunk in (
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "publish", "input": {}},
        asked(),
        tool_data("c", "progress", 1),
        tool_data("c", "progress", 2),
    ):
        fold.apply(chunk)
    fold.apply(answered(fold.message["parts"][1], SuspensionState.RESUMED, resume={"yes": True}))

    [part] = project(fold.message)["parts"]
    assert part["data"] == {"progress": 2}
    assert [each["state"] for each in part["suspensions"]] == ["resumed"]
    assert part["pendingSuspension"] is None


def test_a_message_without_reserved_parts_and_tools_is_handed_through() -> None:
    given = message(TEXT, REASONING)

    assert project(given) is given
    assert Projection().project(given) is given


def test_what_did_not_change_is_the_same_object_as_before() -> None:
    projection, fold = Projection(), Fold()
    for chunk in (
        {"type": "start", "messageId": "m"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
        asked(),
        {"type": "tool-input-available", "toolCallId": "d", "toolName": "t", "input": {}},
        {"type": "text-start", "id": "t"},
    ):
        fold.apply(chunk)
    first = projection.project(fold.message)
    fold.apply({"type": "text-delta", "id": "t", "delta": "x"})
    second = projection.project(fold.message)
    fold.apply(tool_data("d", "progress", 1))
    third = projection.project(fold.message)
    fold.apply({"type": "tool-output-available", "toolCallId": "d", "output": 1})
    fourth = projection.project(fold.message)

    assert [a is b for a, b in zip(first["parts"], second["parts"], strict=True)] == [True, True, False]
    assert [a is b for a, b in zip(second["parts"], third["parts"], strict=True)] == [True, False, True]
    assert [a is b for a, b in zip(third["parts"], fourth["parts"], strict=True)] == [True, False, True]
    assert (fourth["parts"][1]["state"], fourth["parts"][1]["data"]) == ("output-available", {"progress": 1})


def test_a_change_that_shows_nothing_gives_the_same_message() -> None:
    projection = Projection()
    given = message(call(), asked())
    first = projection.project(given)

    assert projection.project(given) is first
    assert projection.project({**given, "parts": [*given["parts"]]}) is first
    assert projection.project({**given, "parts": [*given["parts"], tool_data("gone", "x", 1)]}) is first
    assert projection.project({**given, "metadata": {"pai": {}}}) is not first


def test_projecting_all_forgets_the_messages_that_went() -> None:
    projection = Projection()
    first, second = message(call(), message_id="a"), message(call(), message_id="b")
    before = projection.project_all([first, second])
    projection.project_all([second])
    after = projection.project_all([first, second])

    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True]
