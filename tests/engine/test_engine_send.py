"""Send, its idempotency, the queue and the order of turns."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, said, text_of
from sqlalchemy import text as sql

from pai.engine import api
from pai.engine.locked import lock_by_version
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import (
    IdempotencyConflict,
    MessageConflict,
    NotFound,
    QueueFull,
    QueueItemAdmitted,
    ThreadBusy,
    ValidationFailed,
)
from pai.protocol.requests import RenameRequest
from support.waiting import wait_until


async def busy(engine: Engine) -> asyncio.Event:
    """A thread whose first run streams until the gate is opened."""
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=text(["one", "two"]), gate=gate, gate_at=2))
    await engine.send("first")
    await engine.has_status("running")
    return gate


PLAIN = {"type": "file", "url": "https://files.example/a", "mediaType": "image/png"}


async def test_the_first_send_creates_the_thread_and_its_run_answers(engine: Engine) -> None:
    engine.turns.append("well")
    result = (await engine.send("hello there", messageId="m1", thread="t")).result
    state = await engine.idle()
    assert result.version == state["thread"]["version"]
    assert (result.message_ids, result.queue_item_id) == (["m1"], None)
    assert [text_of(message) for message in state["messages"]] == ["hello there", "well"]
    assert state["thread"]["title"] | {"updatedAt": ""} == {
        "value": "hello there",
        "source": "generated",
        "updatedAt": "",
    }
    run = state["runs"][0]
    assert (run["status"], run["finishReason"], run["admission"]) == ("completed", "stop", {"mode": "direct"})
    assert run["startedAt"] <= run["completedAt"]
    assert state["activeRunId"] is None
    assert state["capabilities"] == {"canStop": False, "canRespondToActions": False}


async def test_the_same_message_id_with_the_same_content_gets_the_recorded_result_and_runs_once(engine: Engine) -> None:
    first = await engine.send("hello", messageId="m1")
    again = await engine.send("hello", messageId="m1", runtime=engine.runtimes[1])
    await engine.idle()
    late = await engine.send("hello", messageId="m1")
    assert (first.replayed, again.replayed, late.replayed) == (False, True, True)
    assert first.result == again.result == late.result
    assert len((await engine.state())["runs"]) == 1


async def test_the_same_message_id_with_other_content_is_a_conflict(engine: Engine) -> None:
    await engine.run("hello", messageId="m1")
    before = await engine.settled()
    with pytest.raises(MessageConflict):
        await engine.send("something else", messageId="m1")
    with pytest.raises(MessageConflict):
        await engine.send("hello", messageId=before["messages"][1]["id"])
    assert await engine.state() == before


async def test_the_id_of_a_message_that_waits_in_the_queue_cannot_be_sent_again(engine: Engine) -> None:
    gate = await busy(engine)
    queued = (await engine.send("queued", queue={"mode": "queue"})).result
    with pytest.raises(MessageConflict):
        await engine.send("other", messageId=queued.message_ids[0], queue={"mode": "queue"})
    gate.set()
    assert [text_of(message) for message in (await engine.idle())["messages"]] == ["first", "onetwo", "queued", "ok"]


async def test_an_idempotency_key_replays_the_same_request_and_refuses_another(engine: Engine) -> None:
    first = await engine.send("hello", key="k1")
    again = await engine.send("hello", key="k1")
    assert (again.replayed, again.result) == (True, first.result)
    with pytest.raises(IdempotencyConflict):
        await engine.send("other", key="k1")
    await engine.idle()
    assert len((await engine.state())["runs"]) == 1


@pytest.mark.parametrize("operation", ["rename", "stop", "stop_run", "recall"])
async def test_every_mutation_takes_an_idempotency_key(engine: Engine, operation: str) -> None:
    gate = await busy(engine)
    queued = (await engine.send("queued", queue={"mode": "queue"})).result
    run_id = (await engine.state())["activeRunId"]
    caller = engine.caller()

    async def rename(title: str) -> Any:
        return await api.rename(engine.runtime, caller, "t", RenameRequest(title=title), key="k")

    async def recall(item: str) -> Any:
        return await api.recall(engine.runtime, caller, "t", item, key="k")

    operations = {
        "rename": (lambda: rename("one"), lambda: rename("other")),
        "stop": (lambda: engine.stop(key="k"), lambda: engine.stop(key="k", continueWith="all")),
        "stop_run": (
            lambda: engine.stop_run(run_id, key="k"),
            lambda: engine.stop_run(run_id, key="k", reason="other"),
        ),
        "recall": (lambda: recall(queued.queue_item_id), lambda: recall("another")),
    }
    same, other = operations[operation]
    first = await same()
    before = await engine.thread()
    again = await same()
    assert (first.replayed, again.replayed) == (False, True)
    assert first.result == again.result
    with pytest.raises(IdempotencyConflict):
        await other()
    gate.set()
    assert (await engine.thread()).revision >= before.revision
    await engine.idle()


async def test_a_busy_thread_refuses_a_send_and_says_why(engine: Engine) -> None:
    gate = await busy(engine)
    with pytest.raises(ThreadBusy) as busy_error:
        await engine.send("second")
    extra = busy_error.value.extra()
    assert extra == {
        "threadStatus": "running",
        "activeRunId": (await engine.state())["activeRunId"],
        "pendingActions": [],
    }
    gate.set()
    await engine.idle()


async def test_a_waiting_thread_refuses_a_send_and_names_what_it_waits_for(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "pick", {"title": "a"}))
    await engine.send()
    actions = await engine.actions()
    with pytest.raises(ThreadBusy) as error:
        await engine.send("second")
    assert error.value.extra() == {"threadStatus": "waiting", "pendingActions": actions}


async def test_steer_items_go_before_queue_items_and_each_in_the_order_of_arrival(engine: Engine) -> None:
    gate = await busy(engine)
    for words, mode in (("q1", "queue"), ("q2", "queue"), ("s1", "steer"), ("s2", "steer")):
        result = (await engine.send(words, queue={"mode": mode})).result
        assert result.run.status == "queued"
        assert result.run.admission.queue_item_id == result.queue_item_id
    state = await engine.state()
    assert [item["mode"] for item in state["queue"]["items"]] == ["queue", "queue", "steer", "steer"]
    gate.set()
    state = await engine.idle()
    users = [text_of(message) for message in state["messages"] if message["role"] == "user"]
    assert users == ["first", "s1", "s2", "q1", "q2"]
    assert state["queue"] == {"items": [], "canRecall": False}


async def test_merging_joins_the_newest_item_of_the_same_mode_and_watchers_see_it(engine: Engine) -> None:
    gate = await busy(engine)
    one = (await engine.send("a", queue={"mode": "queue", "merge": "last"})).result
    two = (await engine.send("b", queue={"mode": "queue", "merge": "last"})).result
    await engine.send("c", queue={"mode": "queue", "merge": "none"})
    other_mode = (await engine.send("d", queue={"mode": "steer", "merge": "last"})).result
    assert (one.run.run_id, one.queue_item_id) == (two.run.run_id, two.queue_item_id)
    assert len(two.run.input_message_ids) == 2
    assert other_mode.run.run_id != one.run.run_id
    items = (await engine.state())["queue"]["items"]
    assert [[text_of(message) for message in item["messages"]] for item in items] == [["a", "b"], ["c"], ["d"]]
    gate.set()
    state = await engine.idle()
    users = [text_of(message) for message in state["messages"] if message["role"] == "user"]
    assert users == ["first", "d", "a", "b", "c"]
    assert len(state["runs"]) == 4


async def test_a_full_queue_refuses_more_messages(engine: Engine) -> None:
    gate = await busy(engine)
    for number in range(engine.settings.max_queued_messages):
        await engine.send(str(number), queue={"mode": "queue", "merge": "last" if number % 2 else "none"})
    with pytest.raises(QueueFull):
        await engine.send("more", queue={"mode": "steer"})
    gate.set()
    await engine.idle()


async def test_queueing_on_an_idle_thread_admits_at_once(engine: Engine) -> None:
    result = (await engine.send("hello", queue={"mode": "steer"})).result
    assert (result.run.status, result.run.admission.mode, result.queue_item_id) == ("running", "direct", None)
    await engine.idle()


async def test_of_fifty_sends_to_a_new_id_one_creates_the_thread_and_the_others_are_refused(engine: Engine) -> None:
    engine.post.holds = True

    async def attempt(number: int) -> str:
        try:
            reply = await engine.send(str(number), runtime=engine.runtimes[number % 2])
        except ThreadBusy:
            return "busy"
        return str(reply.result.version)

    answers = await asyncio.gather(*map(attempt, range(50)))
    assert sorted(answers)[1:] == ["busy"] * 49 or answers.count("busy") == 49
    assert len((await engine.state())["messages"]) == 2
    engine.post.release()
    await engine.idle()


async def test_a_message_that_is_sent_fifty_times_at_once_runs_once(engine: Engine) -> None:
    replies = await asyncio.gather(
        *(engine.send("hello", messageId="m1", runtime=engine.runtimes[number % 2]) for number in range(50))
    )
    assert sum(not reply.replayed for reply in replies) == 1
    assert len({reply.result.run.run_id for reply in replies}) == 1
    state = await engine.idle()
    assert len(state["runs"]) == 1
    assert len(state["messages"]) == 2


async def test_parallel_queueing_admits_every_message_exactly_once(engine: Engine) -> None:
    gate = await busy(engine)
    await asyncio.gather(
        *(engine.send(f"q{n}", queue={"mode": "queue"}, runtime=engine.runtimes[n % 2]) for n in range(5))
    )
    gate.set()
    state = await engine.idle()
    users = [text_of(message) for message in state["messages"] if message["role"] == "user"]
    assert sorted(users) == ["first", "q0", "q1", "q2", "q3", "q4"]
    assert all(run["status"] == "completed" for run in state["runs"])


async def test_recalled_input_leaves_no_trace_in_the_transcript(engine: Engine) -> None:
    gate = await busy(engine)
    queued = (await engine.send("queued", queue={"mode": "queue"})).result
    recalled = (await api.recall(engine.runtime, engine.caller(), "t", queued.queue_item_id)).result
    assert (recalled.run.status, recalled.run.run_id) == ("cancelled", queued.run.run_id)
    assert [text_of(message) for message in recalled.cancelled[0].messages] == ["queued"]
    with pytest.raises(NotFound):
        await api.recall(engine.runtime, engine.caller(), "t", queued.queue_item_id)
    gate.set()
    state = await engine.idle()
    assert "queued" not in [text_of(message) for message in state["messages"]]


async def test_a_recall_after_admission_is_refused(engine: Engine) -> None:
    gate = await busy(engine)
    queued = (await engine.send("queued", queue={"mode": "queue"})).result
    gate.set()
    await engine.idle()
    with pytest.raises(QueueItemAdmitted):
        await api.recall(engine.runtime, engine.caller(), "t", queued.queue_item_id)


async def test_a_recall_and_the_admission_at_once_have_one_winner(engine: Engine) -> None:
    gate = await busy(engine)
    queued = (await engine.send("queued", queue={"mode": "queue"})).result
    gate.set()
    try:
        await api.recall(engine.runtimes[1], engine.caller(), "t", queued.queue_item_id)
        expected = "cancelled"
    except QueueItemAdmitted:
        expected = "completed"
    state = await engine.idle()
    run = next(run for run in state["runs"] if run["runId"] == queued.run.run_id)
    assert run["status"] == expected


async def test_nothing_of_another_identity_can_be_reached(engine: Engine) -> None:
    gate = await busy(engine)
    run_id = (await engine.state())["activeRunId"]
    stranger = engine.caller("bob")
    assert await api.get_state(engine.runtime, stranger, "t") is None
    assert await api.locate(engine.runtime, stranger, "t") is None
    with pytest.raises(NotFound):
        await api.get_run(engine.runtime, stranger, "t", run_id)
    with pytest.raises(NotFound):
        await api.rename(engine.runtime, stranger, "t", RenameRequest(title="mine"))
    await api.delete(engine.runtime, stranger, "t")
    await api.send(engine.runtime, stranger, "t", said("mine"))
    assert (await api.locate(engine.runtime, stranger, "t")) != await api.locate(engine.runtime, engine.caller(), "t")
    gate.set()
    await engine.idle()

    async def done() -> bool:
        state = await api.get_state(engine.runtime, stranger, "t")
        return state is not None and state.thread.status == "idle"

    await wait_until(done)


@pytest.mark.parametrize(
    "request_of",
    [
        {"message": {"parts": [{"type": "text", "text": " \n "}]}},
        {"message": {"parts": [{"type": "file", "url": "ftp://x/y", "mediaType": "image/png"}]}},
        {"message": {"parts": [{**PLAIN, "providerMetadata": {"pai": {"fileId": "file_1"}}}]}},
        {"message": {"parts": [{"type": "text", "text": "x"}], "metadata": {"pai": {}}}},
        {"message": {"parts": [{"type": "text", "text": "x"}]}, "clientTools": [{"name": "add"}]},
    ],
)
async def test_a_bad_request_creates_nothing(engine: Engine, request_of: dict[str, Any]) -> None:
    from pai.protocol.requests import SendRequest

    with pytest.raises(ValidationFailed):
        await api.send(engine.runtime, engine.caller(), "t", SendRequest.read(request_of))
    assert await api.get_state(engine.runtime, engine.caller(), "t") is None


async def test_text_with_nul_and_emoji_is_cleaned_before_it_is_stored(engine: Engine) -> None:
    await engine.run("a\0b 😀")
    assert text_of((await engine.state())["messages"][0]) == "a\N{REPLACEMENT CHARACTER}b 😀"


async def test_a_send_that_meets_a_deletion_makes_the_thread_anew(engine: Engine) -> None:
    await engine.run()
    old = (await engine.thread()).version

    async def waits_for_the_lock() -> bool:
        if engine.runtime.store.dialect == "sqlite":
            return True  # it waits before it begins
        async with engine.runtime.store.autocommit() as connection:
            return bool((await connection.execute(sql("SELECT count(*) FROM pg_locks WHERE NOT granted"))).scalar())

    async with engine.workers[0].runtime.store.write() as connection:
        await lock_by_version(connection, version=old)
        sending = asyncio.create_task(engine.send("again", runtime=engine.runtimes[1]))
        await wait_until(waits_for_the_lock)
        await connection.execute(sql("DELETE FROM thread WHERE version = :version"), {"version": old})
    reply = await sending
    assert reply.result.version != old
    state = await engine.idle()
    assert [text_of(message) for message in state["messages"]] == ["again", "ok"]
