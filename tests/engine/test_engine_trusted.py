"""What trusted callers do: messages without a run, who sees them, metadata, and threads of everybody."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, said, text_of
from test_engine_stop import streaming

from pai.engine import api
from pai.engine.runtime import Caller
from pai.log.entries import EntryKind
from pai.models import Turn
from pai.models.chunks import text, tool_call
from pai.protocol.errors import (
    Forbidden,
    IdempotencyConflict,
    MessageConflict,
    NotFound,
    ThreadBusy,
    TooLarge,
    ValidationFailed,
)
from pai.protocol.identity import Identity
from pai.protocol.trusted import (
    AppendMessageRequest,
    LookUpMessagesRequest,
    MetadataRequest,
    VisibilityRequest,
)
from support.waiting import wait_until

OPS = Identity(subject="ops", trusted=True)


PLAIN = {"type": "file", "url": "https://files.example/a", "mediaType": "a/b"}
FORGED = {"pai": {"fileId": "file_1"}}


def admin(engine: Engine, owner: str | None = "default/ann", agent: str = "main") -> Caller:
    return Caller(OPS, engine.agent(agent), owner)


async def append(engine: Engine, words: str = "note", *, key: str | None = None, **more: Any) -> Any:
    message = {"role": more.pop("role", "assistant"), "parts": more.pop("parts", [{"type": "text", "text": words}])}
    request = AppendMessageRequest.read({"message": message, **more})
    return await api.append_message(engine.runtime, admin(engine), "t", request, key=key)


async def show(engine: Engine, visibility: str, *message_ids: str) -> Any:
    request = VisibilityRequest.read({"messageIds": list(message_ids), "visibility": visibility})
    return await api.set_visibility(engine.runtime, admin(engine), "t", request)


async def look_up(engine: Engine, *message_ids: str, thread: str = "t") -> list[Any]:
    request = LookUpMessagesRequest.read({"messageIds": list(message_ids)})
    return (await api.get_messages(engine.runtime, admin(engine), thread, request)).messages


def asked(engine: Engine) -> list[str]:
    """The texts that the latest model call saw."""
    return [text_of(message) for message in engine.model.requests[-1].messages]


async def texts(engine: Engine) -> list[str]:
    return [text_of(message) for message in (await engine.settled())["messages"]]


async def test_an_appended_message_is_seen_by_people_and_by_the_next_model_call(engine: Engine) -> None:
    await engine.run("one")
    reply = await append(engine, "shipped", privateMetadata={"by": "ops"})
    assert await texts(engine) == ["one", "ok", "shipped"]
    message = (await engine.state())["messages"][2]
    assert {name: message["metadata"]["pai"][name] for name in ("producer", "status")} == {
        "producer": "admin",
        "status": "committed",
    }
    assert "by" not in str(await engine.state())
    [found] = await look_up(engine, reply.result.id, "missing")
    assert (found.visibility, found.private_metadata, found.role) == ("all", {"by": "ops"}, "assistant")
    assert (await engine.state())["runs"][0]["status"] == "completed"
    await engine.run("two")
    assert asked(engine) == ["one", "ok", "shipped", "two"]


async def test_a_message_appended_while_a_run_works_stands_before_its_next_step(engine: Engine) -> None:
    gate = await streaming(engine, [*text(["wait "]), *tool_call("c1", "echo", {"words": "x"})], at=2)
    await append(engine, "by the way", role="user")
    gate.set()
    await engine.idle()
    assert asked(engine)[-1] == "by the way"
    roles = [message["role"] for message in (await engine.state())["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_nothing_comes_between_a_turn_that_the_provider_paused_and_its_end(engine: Engine) -> None:
    pauses = [asyncio.Event(), asyncio.Event()]
    halves = [[*text(["one "])], [*text(["two "])]]
    engine.turns += [Turn(chunks=half, suspended=True, gate=gate) for half, gate in zip(halves, pauses, strict=True)]
    engine.turns += ["three", tool_call("c1", "echo", {"words": "x"}), "done"]
    await engine.send("go")
    for number, gate in enumerate(pauses, 1):
        await wait_until(lambda number=number: len(engine.model.requests) == number)
        await append(engine, f"note {number}", role="user")
        gate.set()
    await engine.idle()
    assert [[text_of(message) for message in request.messages] for request in engine.model.requests] == [
        ["go"],
        ["go", "note 1", "one "],
        ["go", "note 1", "note 2", "one ", "two "],
    ]
    assert await texts(engine) == ["go", "one ", "note 1", "two ", "note 2", "three"]
    await engine.run("next")
    assert asked(engine)[:7] == ["go", "note 1", "note 2", "one ", "two ", "three", "next"]
    await append(engine, "the end", role="user")
    await engine.run("last")
    assert asked(engine)[-3:] == ["done", "the end", "last"], "what was not paused stays in order"


@pytest.mark.parametrize("thread", ["", "a\0b", "a/b", "..", "ü", "x" * 201, "missing"])
async def test_what_names_no_thread_has_no_messages_and_no_metadata(engine: Engine, thread: str) -> None:
    with pytest.raises(NotFound):
        await look_up(engine, "m", thread=thread)
    with pytest.raises(NotFound):
        await api.read_metadata(engine.runtime, admin(engine), thread)


@pytest.mark.parametrize(
    ("visibility", "people", "model"),
    [("all", True, True), ("ui", True, False), ("model", False, True), ("none", False, False)],
)
async def test_visibility_says_who_sees_a_message(engine: Engine, visibility: str, people: bool, model: bool) -> None:
    await engine.run("one")
    answer = (await engine.state())["messages"][1]["id"]
    await append(engine, "made so", visibility=visibility)
    await show(engine, visibility, answer)
    shown = await texts(engine)
    assert shown == ["one", "ok", "made so"] if people else shown == ["one"]
    await engine.run("two")
    assert asked(engine) == (["one", "ok", "made so", "two"] if model else ["one", "two"])
    trusted = await api.get_state(engine.runtime, admin(engine), "t")
    assert trusted is not None
    assert [text_of(message) for message in trusted.messages] == ["one", "ok", "made so", "two", "ok"]
    assert {message.visibility for message in await look_up(engine, answer)} == {visibility}


async def test_watchers_see_messages_go_and_come_back_where_they_were(engine: Engine) -> None:
    """The rules checked at the end fold all events: they must give the snapshot."""
    await engine.run("one")
    await engine.run("two")
    ids = [message["id"] for message in (await engine.state())["messages"]]
    version = (await engine.thread()).version
    await show(engine, "model", ids[3])
    assert (await engine.settled())["messages"][-1]["id"] == ids[2]
    await show(engine, "all", ids[3])
    assert [message["id"] for message in (await engine.settled())["messages"]] == ids
    log = await engine.runtime.log.read_after(version, sequence=0)
    assert not any(entry.kind is EntryKind.RESET for entry in log.entries)
    await show(engine, "none", *ids[:2])
    await show(engine, "ui", *ids[:2])
    assert [message["id"] for message in (await engine.settled())["messages"]] == ids
    log = await engine.runtime.log.read_after(version, sequence=0)
    assert any(entry.kind is EntryKind.RESET for entry in log.entries)


async def test_a_message_that_is_still_open_or_missing_keeps_all_as_they_are(engine: Engine) -> None:
    gate = await streaming(engine, text(["so ", "far"]), at=2)
    user, answer = [message["id"] for message in (await engine.state())["messages"]]
    before = (await engine.thread()).revision
    with pytest.raises(ThreadBusy):
        await show(engine, "none", user, answer)
    with pytest.raises(NotFound):
        await show(engine, "none", user, "missing")
    assert (await engine.thread()).revision == before
    assert [message["id"] for message in (await engine.state())["messages"]] == [user, answer]
    gate.set()
    await engine.idle()


async def test_a_message_that_people_do_not_see_never_enters_the_log(engine: Engine) -> None:
    reply = await engine.run("one")
    await append(engine, "secret", visibility="model")
    await engine.settled()
    log = await engine.runtime.log.read_after(reply.version, sequence=0)
    assert not any(b"secret" in entry.body for entry in log.entries)


async def test_the_same_append_is_done_once(engine: Engine) -> None:
    await engine.run("one")
    first = await append(engine, messageId="m9", key="k")
    again = await append(engine, messageId="m9", key="k")
    assert again.replayed
    assert again.result == first.result
    assert (await append(engine, messageId="m9")).replayed
    with pytest.raises(MessageConflict):
        await append(engine, "other", messageId="m9")
    with pytest.raises(IdempotencyConflict):
        await append(engine, "other", key="k")
    with pytest.raises(MessageConflict):
        await engine.send("mine", messageId="m9")
    with pytest.raises(MessageConflict):
        await append(engine, messageId=(await engine.state())["messages"][0]["id"])
    assert await texts(engine) == ["one", "ok", "note"]


@pytest.mark.parametrize(
    ("role", "part"),
    [
        ("assistant", {"type": "tool-echo", "toolCallId": "c", "state": "input-available", "input": {}}),
        ("user", {"type": "tool-echo", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}),
        ("assistant", {"type": "text", "text": "x", "state": "streaming"}),
        ("assistant", {"type": "data-pai-suspension", "id": "s", "data": {}}),
        ("assistant", {"type": "nothing"}),
        ("assistant", {"type": "text"}),
        ("user", {"type": "file", "url": "javascript:alert(1)", "mediaType": "text/html"}),
        ("assistant", {"type": "source-url", "sourceId": "s", "url": " javascript:alert(1)"}),
        ("assistant", {"type": "file", "url": "data:,x", "mediaType": "a/b", "providerMetadata": FORGED}),
        ("assistant", {"type": "steering-message", "id": "s", "parts": [{**PLAIN, "providerMetadata": FORGED}]}),
        ("assistant", {"type": "steering-message", "id": "s", "parts": [{**PLAIN, "url": "blob:x"}]}),
    ],
)
async def test_what_no_complete_message_holds_is_refused(engine: Engine, role: str, part: dict[str, Any]) -> None:
    await engine.run("one")
    with pytest.raises(ValidationFailed) as refused:
        await append(engine, role=role, parts=[{"type": "text", "text": "fine"}, part])
    assert refused.value.errors[0].path.startswith("message.parts.1")
    with pytest.raises(TooLarge):
        await append(engine, "x" * (engine.settings.max_message_bytes + 1))
    assert await texts(engine) == ["one", "ok"]


async def test_a_file_at_an_ordinary_address_may_be_appended(engine: Engine) -> None:
    await engine.run("one")
    await append(engine, parts=[{**PLAIN, "providerMetadata": {"other": {"a": 1}}}])
    assert (await engine.settled())["messages"][-1]["parts"] == [{**PLAIN, "providerMetadata": {"other": {"a": 1}}}]


async def test_a_settled_call_may_be_appended_and_the_model_is_told(engine: Engine) -> None:
    await engine.run("one")
    part = {"type": "tool-echo", "toolCallId": "c", "state": "output-available", "input": {"words": "x"}, "output": "x"}
    await append(engine, parts=[part])
    await engine.run("two")
    assert engine.model.requests[-1].messages[2]["parts"][0]["output"] == "x"


async def test_metadata_of_threads_and_runs_is_merged_and_its_private_side_stays_private(engine: Engine) -> None:
    reply = await engine.run("one", agent="hooked")
    caller, run_id = admin(engine, agent="hooked"), reply.run.run_id
    for run in (None, run_id):
        change = MetadataRequest.read({"metadata": {"a": 1, "b": None}, "privateMetadata": {"secret": "x"}})
        changed = await api.change_metadata(engine.runtime, caller, "t", change, run_id=run)
        assert changed.result.private_metadata == {"secret": "x"}
        more = MetadataRequest.read({"metadata": {"b": 2}})
        await api.change_metadata(engine.runtime, caller, "t", more, run_id=run)
        record = await api.read_metadata(engine.runtime, caller, "t", run_id=run)
        assert (record.metadata, record.private_metadata) == ({"a": 1, "b": 2}, {"secret": "x"})
    state = await engine.state(agent="hooked")
    assert state["thread"]["metadata"] == state["runs"][0]["metadata"] == {"a": 1, "b": 2}
    assert "secret" not in str(state)
    log = await engine.runtime.log.read_after((await engine.thread()).version, sequence=0)
    assert not any(b"secret" in entry.body for entry in log.entries)
    reserved = MetadataRequest.read({"metadata": {"pai": 1}})
    with pytest.raises(ValidationFailed):
        await api.change_metadata(engine.runtime, caller, "t", reserved)
    with pytest.raises(NotFound):
        await api.change_metadata(engine.runtime, caller, "t", reserved, run_id="none")


async def test_a_list_across_owners_and_agents_pages_through_all_and_names_them(engine: Engine) -> None:
    for number, (subject, agent) in enumerate([("ann", "main"), ("bob", "main"), ("ann", "hooked"), ("eve", "main")]):
        await api.send(engine.runtime, engine.caller(subject, agent=agent), f"t{number}", said("hi"))
    seen: list[Any] = []
    token = None
    while True:
        page = await api.list_all_threads(engine.runtime, OPS, page_token=token, limit=3)
        seen += page.items
        if (token := page.next_page_token) is None:
            break
    assert {(item.owner, item.agent, item.thread_id) for item in seen} == {
        ("default/ann", "main", "t0"),
        ("default/bob", "main", "t1"),
        ("default/ann", "hooked", "t2"),
        ("default/eve", "main", "t3"),
    }
    assert len(seen) == 4
    mine = await api.list_all_threads(engine.runtime, OPS, owner="default/ann", agent="hooked")
    assert [item.thread_id for item in mine.items] == ["t2"]
    ordinary = (await api.list_threads(engine.runtime, engine.caller())).items[0]
    assert (ordinary.agent, ordinary.hidden, ordinary.owner) == (None, None, None)
    await wait_until(lambda: _idle(engine))


async def _idle(engine: Engine) -> bool:
    page = await api.list_all_threads(engine.runtime, OPS, limit=100)
    return all(item.status == "idle" for item in page.items)


async def test_ordinary_callers_are_refused_before_anything_is_looked_up(engine: Engine) -> None:
    caller = engine.caller()
    runtime = engine.runtime
    message = AppendMessageRequest.read({"message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}})
    for thread in ("t", "missing"):
        for call in (
            api.append_message(runtime, caller, thread, message),
            api.get_messages(runtime, caller, thread, LookUpMessagesRequest.read({"messageIds": []})),
            api.set_visibility(
                runtime, caller, thread, VisibilityRequest.read({"messageIds": ["m"], "visibility": "none"})
            ),
            api.read_metadata(runtime, caller, thread),
            api.read_metadata(runtime, caller, thread, run_id="r"),
            api.change_metadata(runtime, caller, thread, MetadataRequest()),
            api.list_all_threads(runtime, caller.identity),
            api.list_threads(runtime, caller, hidden=True),
            api.list_threads(runtime, caller, agent="hooked"),
        ):
            with pytest.raises(Forbidden):
                await call


async def test_hiding_and_answering_at_once_leaves_what_both_say(engine: Engine) -> None:
    await engine.run("one")
    ids = [message["id"] for message in (await engine.state())["messages"]]
    for round_ in range(10):
        visibility = ("all", "none", "ui", "model")[round_ % 4]
        await asyncio.gather(show(engine, visibility, *ids), engine.run(f"more {round_}"), append(engine))
