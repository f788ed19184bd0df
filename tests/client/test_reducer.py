"""What events and snapshots do to the state that a handle shows."""

import copy
from typing import Any

import pytest
from fake_thread import START, FakeThread, long_answer, model_facts, open_message, run_record, user_message

from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage
from pai.client.reducer import Adoption, Reducer, Verdict
from pai.fold.projection import project
from pai.protocol.state import TransportState


def reducer_of(thread: FakeThread) -> Reducer:
    reducer = Reducer(thread.thread_id, Binding())
    assert reducer.adopt(thread.snapshot(), asked_with=None) is Adoption.adopted
    return reducer


def feed(reducer: Reducer, events: list[dict[str, Any]]) -> list[Verdict]:
    return [reducer.apply(event) for event in events]  # type: ignore[arg-type]


def shown(reducer: Reducer) -> list[dict[str, Any]]:
    return [message.raw for message in reducer.messages]


def projected(thread: FakeThread) -> list[dict[str, Any]]:
    return [project(message) for message in thread.snapshot().messages]


@pytest.fixture
def thread() -> FakeThread:
    thread = FakeThread()
    thread.begin()
    thread.live(
        "out_1", {"type": "start", "messageId": "out_1"}, {"type": "start-step"}, {"type": "text-start", "id": "x"}
    )
    return thread


def delta(text: str = "word ") -> dict[str, Any]:
    return {"type": "text-delta", "id": "x", "delta": text}


def test_all_events_from_the_first_one_on_make_the_state_that_a_snapshot_shows() -> None:
    thread = FakeThread()
    long_answer(thread)
    reducer = Reducer("t", Binding())
    assert set(feed(reducer, thread.events)) == {Verdict.applied}
    assert shown(reducer) == projected(thread)
    assert reducer.run("run_1") is not None
    assert [run.wire() for run in reducer.runs] == [run.wire() for run in thread.snapshot().runs]


@pytest.mark.parametrize("at", range(50))
def test_a_snapshot_taken_anywhere_in_an_answer_is_continued_by_the_events_behind_it(at: int) -> None:
    complete = FakeThread()
    long_answer(complete)
    partial = FakeThread()
    snapshots = [partial.wire()]
    original = partial._publish

    def publish(event: dict[str, Any], *, lost: bool = False) -> None:
        original(event, lost=lost)
        if event["type"] == "update" or "revision" not in event:
            snapshots.append(partial.wire())

    partial._publish = publish  # type: ignore[method-assign]
    long_answer(partial)
    state = TransportState.read(snapshots[min(at, len(snapshots) - 1)])
    reducer = Reducer("t", Binding())
    reducer.adopt(state, asked_with=None)
    assert set(feed(reducer, complete.after(reducer.sequence))) <= {Verdict.applied}
    assert shown(reducer) == projected(complete)


def test_an_event_that_was_seen_is_skipped(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.live("out_1", delta())
    assert feed(reducer, thread.events) == [Verdict.skipped] * (len(thread.events) - 1) + [Verdict.applied]
    assert feed(reducer, thread.events[-1:]) == [Verdict.skipped]
    assert shown(reducer)[-1]["parts"][-1]["text"] == "word "


def test_a_gap_asks_for_a_repair_and_changes_nothing(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    before = reducer.messages
    thread.live("out_1", delta("one "), delta("two "))
    assert feed(reducer, thread.events[-1:]) == [Verdict.repair]
    assert reducer.messages is before
    assert reducer.adopt(thread.snapshot(), asked_with="v1", needed=thread.sequence) is Adoption.adopted
    assert shown(reducer)[-1]["parts"][-1]["text"] == "one two "


def test_another_version_asks_for_a_repair(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    other = FakeThread(version="v2")
    other.begin()
    assert feed(reducer, other.events) == [Verdict.repair]
    assert reducer.adopt(other.snapshot(), asked_with="v1") is Adoption.adopted
    assert reducer.version == "v2"
    assert len(reducer.messages) == 2


def test_a_revision_that_is_skipped_asks_for_a_repair(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.commit(lost=True, activeRunId=None)
    thread.commit(runs=[run_record("t", status="completed")])
    assert feed(reducer, thread.after(reducer.sequence)) == [Verdict.repair]


def test_a_reset_asks_for_a_repair_however_far_the_sequence_jumps(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.reset(jump=START)
    assert feed(reducer, thread.events[-1:]) == [Verdict.repair]
    assert reducer.adopt(thread.snapshot(), asked_with="v1", needed=thread.sequence) is Adoption.adopted
    thread.live("out_1", delta())
    assert feed(reducer, thread.events[-1:]) == [Verdict.applied]


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "chunk",
            "runId": "run_1",
            "messageId": "out_1",
            "chunk": {"type": "text-delta", "id": "no", "delta": "x"},
        },
        {
            "type": "chunk",
            "runId": "run_1",
            "messageId": "unknown",
            "chunk": {"type": "text-delta", "id": "x", "delta": "x"},
        },
        {"type": "chunk", "runId": "run_1", "messageId": "in_1", "chunk": {"type": "start-step"}},
        {"type": "chunk", "runId": "run_1", "messageId": "out_1", "chunk": {"type": "start", "messageId": "other"}},
        {"type": "chunk", "runId": "run_1", "messageId": "out_1", "chunk": None},
        {"type": "update", "revision": 2, "changes": {"messages": [{"id": "unknown", "metadata": {}}]}},
        {"type": "update", "revision": 2, "changes": {"activeRunId": None, "runs": [{"runId": "broken"}]}},
        {"type": "update", "revision": 2, "changes": {"thread": {"status": "dancing"}}},
    ],
)
def test_an_event_that_cannot_be_reduced_asks_for_a_repair_and_changes_nothing(
    thread: FakeThread, event: dict[str, Any]
) -> None:
    reducer = reducer_of(thread)
    before = (reducer.messages, reducer.runs, reducer.head, reducer.active_run_id, reducer.position, reducer.revision)
    placed = {**event, "threadId": "t", "version": "v1", "sequence": reducer.sequence + 1}
    assert feed(reducer, [placed]) == [Verdict.repair]
    after = (reducer.messages, reducer.runs, reducer.head, reducer.active_run_id, reducer.position, reducer.revision)
    assert after == before


def test_events_of_a_transaction_that_a_snapshot_holds_already_are_passed_over(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    ahead = FakeThread()
    ahead.begin()
    # The snapshot was read between commit and publish: SQL is ahead of the log.
    state = thread.snapshot()
    thread.commit(chunks=[("out_1", {"type": "data-chart", "data": 1})], runs=[run_record("t", status="waiting")])
    newest = thread.snapshot().model_copy(update={"sequence": state.sequence})
    assert reducer.adopt(newest, asked_with="v1") is Adoption.adopted
    assert feed(reducer, thread.events[-2:]) == [Verdict.skipped, Verdict.skipped]
    assert reducer.sequence == thread.sequence
    thread.live("out_1", delta())
    assert feed(reducer, thread.events[-1:]) == [Verdict.applied]
    assert [part["type"] for part in shown(reducer)[-1]["parts"]] == ["step-start", "text", "data-chart"]


def test_a_snapshot_that_is_older_than_what_was_shown_is_never_shown(thread: FakeThread) -> None:
    old = thread.snapshot()
    thread.live("out_1", delta())
    reducer = reducer_of(thread)
    assert reducer.adopt(old, asked_with="v1") is Adoption.current
    assert reducer.adopt(old, asked_with="v1", needed=reducer.sequence + 1) is Adoption.stale
    assert shown(reducer)[-1]["parts"][-1]["text"] == "word "
    thread.commit(title=None)
    newer = thread.snapshot()
    feed(reducer, thread.events[-1:])
    crossed = old.model_copy(update={"revision": newer.revision + 1})
    assert reducer.adopt(crossed, asked_with="v1") is Adoption.stale
    assert reducer.adopt(old, asked_with="v1", needed=newer.sequence + 1, force=True) is Adoption.stale


def test_a_lower_sequence_with_the_same_content_is_taken_because_the_log_was_lost() -> None:
    thread = FakeThread()
    thread.begin()
    thread.live("out_1", {"type": "start", "messageId": "out_1"})
    thread.finish()
    reducer = reducer_of(thread)
    lost = thread.snapshot().model_copy(update={"sequence": START})
    assert reducer.adopt(lost, asked_with="v1", needed=thread.sequence + 5) is Adoption.adopted
    assert reducer.sequence == START


def test_a_lower_sequence_with_less_content_is_only_taken_when_it_was_asked_for_often(thread: FakeThread) -> None:
    lost = thread.snapshot()
    thread.live("out_1", delta())
    reducer = reducer_of(thread)
    assert reducer.adopt(lost, asked_with="v1", needed=thread.sequence + 1) is Adoption.stale
    assert reducer.adopt(lost, asked_with="v1", needed=thread.sequence + 1, force=True) is Adoption.adopted


def test_a_deleted_version_is_ignored_for_ever(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.delete()
    assert feed(reducer, thread.events[-1:]) == [Verdict.deleted]
    assert reducer.version is None
    assert reducer.messages == ()
    assert reducer.adopt(thread.snapshot(), asked_with=None) is Adoption.current
    assert set(feed(reducer, thread.events)) == {Verdict.skipped}
    assert reducer.messages == ()
    again = FakeThread(version="v2")
    again.begin()
    assert feed(reducer, again.events) == [Verdict.applied]
    assert reducer.version == "v2"


def test_a_snapshot_that_was_asked_for_before_a_thread_was_made_says_nothing_about_it(thread: FakeThread) -> None:
    reducer = Reducer("t", Binding())
    assert set(feed(reducer, thread.events)) == {Verdict.applied}
    assert reducer.adopt(None, asked_with=None) is Adoption.stale
    assert reducer.version == "v1"
    assert reducer.adopt(None, asked_with="v1") is Adoption.adopted
    assert reducer.version is None
    assert reducer.deleted_versions == {"v1"}


def test_facts_without_parts_replace_the_facts_and_keep_what_streams(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.live("out_1", delta("one "))
    feed(reducer, thread.events[-1:])
    facts = {**model_facts("run_1"), "usage": {"inputTokens": 7, "inputTokenDetails": {}, "outputTokenDetails": {}}}
    changes = {"messages": [{"id": "out_1", "metadata": {"topic": "weather", "pai": facts}}]}
    where = {"threadId": "t", "version": "v1", "sequence": reducer.sequence + 1}
    feed(reducer, [{"type": "update", "revision": 2, "changes": changes, **where}])
    live = {"type": "chunk", "runId": "run_1", "messageId": "out_1", "chunk": delta("two ")}
    assert feed(reducer, [{**live, **where, "sequence": reducer.sequence + 1}]) == [Verdict.applied]
    message = reducer.messages[-1]
    assert message.text == "one two "
    assert message.metadata["topic"] == "weather"
    assert message.metadata.pai.usage.input_tokens == 7  # type: ignore[union-attr]


def test_facts_that_come_in_the_middle_of_a_tool_input_do_not_interrupt_it(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.live(
        "out_1",
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "weather"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"city": "Ber'},
    )
    assert set(feed(reducer, thread.after(reducer.sequence))) == {Verdict.applied}
    changes = {"messages": [{"id": "out_1", "metadata": {"pai": model_facts("run_1")}}]}
    where = {"threadId": "t", "version": "v1", "sequence": reducer.sequence + 1}
    assert feed(reducer, [{"type": "update", "revision": 2, "changes": changes, **where}]) == [Verdict.applied]
    more = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": 'lin"}'}
    live = {"type": "chunk", "runId": "run_1", "messageId": "out_1", "chunk": more}
    assert feed(reducer, [{**live, **where, "sequence": reducer.sequence + 1}]) == [Verdict.applied]
    assert shown(reducer)[-1]["parts"][-1]["input"] == {"city": "Berlin"}


def test_updates_append_replace_in_place_and_remove(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.commit(messages=[user_message("in_1", "changed"), open_message("out_9")])
    thread.commit(removedMessageIds=["out_1"], removedRunIds=["run_1"], runs=[run_record("t", "run_2")])
    feed(reducer, thread.after(reducer.sequence))
    assert [message.id for message in reducer.messages] == ["in_1", "out_9"]
    assert reducer.messages[0].text == "changed"
    assert [run.run_id for run in reducer.runs] == ["run_2"]
    assert reducer.run("run_1") is None


def test_a_message_that_is_removed_and_put_again_between_two_looks_is_the_last_one(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    assert [message.id for message in reducer.messages] == ["in_1", "out_1"]
    thread.commit(removedMessageIds=["in_1"])
    thread.commit(messages=[user_message("in_1", "again")])
    feed(reducer, thread.after(reducer.sequence))
    assert [message.id for message in reducer.messages] == ["out_1", "in_1"]


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"activeRunId": None}, "active_run_id", None),
        ({"error": {"code": "auth", "message": "no", "at": "2026"}}, "error.code", "auth"),
        ({"error": None}, "error", None),
        ({"capabilities": {"canStop": True, "canRespondToActions": True}}, "capabilities.can_respond_to_actions", True),
        ({"usage": {"totalTokens": 3, "inputTokenDetails": {}, "outputTokenDetails": {}}}, "usage.total_tokens", 3),
        ({"queue": {"items": [], "canRecall": True}}, "queue.can_recall", True),
    ],
)
def test_each_record_of_an_update_replaces_its_own(
    thread: FakeThread, changes: dict[str, Any], name: str, expected: Any
) -> None:
    reducer = reducer_of(thread)
    thread.commit(**changes)
    assert feed(reducer, thread.events[-1:]) == [Verdict.applied]
    value: Any = reducer
    for attribute in name.split("."):
        value = getattr(value, attribute)
    assert value == expected


def test_what_did_not_change_is_the_same_object_and_what_was_shown_never_changes(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    thread.live("out_1", delta("one "), {"type": "text-end", "id": "x"}, {"type": "text-start", "id": "z"})
    feed(reducer, thread.after(reducer.sequence))
    first = reducer.messages
    kept = copy.deepcopy([message.raw for message in first])
    thread.live("out_1", {"type": "text-delta", "id": "z", "delta": "two"})
    feed(reducer, thread.after(reducer.sequence))
    second = reducer.messages
    assert second is not first
    assert second[0] is first[0]
    assert second[1] is not first[1]
    assert second[1].parts[1] is first[1].parts[1]
    assert second[1].parts[2] is not first[1].parts[2]
    assert second[1].metadata is first[1].metadata
    assert [message.raw for message in first] == kept
    assert reducer.messages is second


def test_a_repair_shares_everything_that_it_does_not_change(thread: FakeThread) -> None:
    thread.live("out_1", delta("one "), {"type": "text-end", "id": "x"})
    reducer = reducer_of(thread)
    first, runs = reducer.messages, reducer.runs
    thread.live("out_1", {"type": "text-start", "id": "z"})
    reducer.adopt(thread.snapshot(), asked_with="v1")
    second = reducer.messages
    assert second[0] is first[0]
    assert second[1].parts[1] is first[1].parts[1]
    assert reducer.runs[0] is runs[0]


def test_a_look_at_an_unchanged_thread_costs_nothing(thread: FakeThread) -> None:
    reducer = reducer_of(thread)
    assert reducer.messages is reducer.messages
    assert reducer.runs is reducer.runs
    assert isinstance(reducer.message("in_1"), PaiCanonicalMessage)
    assert reducer.message("none") is None
