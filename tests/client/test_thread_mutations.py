"""Sending and everything else that changes a thread: what is asked, what shows meanwhile, and what comes back."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from fake_thread import AT, FakeThread, run_record, user_message
from fake_transport import PolledTransport, StreamTransport
from pydantic import BaseModel

from pai.client import (
    AgentClient,
    PaiAttachmentPart,
    PaiPendingInputMessage,
    RequestContext,
    SendQueueOptions,
    UploadedFile,
    UserMessageInput,
    create_agent_client,
    is_optimistic_input_message,
)
from pai.client.inputs import SendQueue, queue_options
from pai.protocol.errors import RegenerateInvalid, ThreadBusy, TransportError, ValidationFailed

SECONDS = 10


@pytest.fixture
def thread(transport: StreamTransport) -> FakeThread:
    """A thread whose sends are admitted at once."""
    thread = transport.add(FakeThread())

    def send(_: Any, request: Any) -> Any:
        run_id = f"run_{thread.revision + 1}"
        message = user_message(request.message_id, request.message.parts[0].text, run_id)
        thread.commit(messages=[message], runs=[run_record("t", run_id, inputMessageIds=[request.message_id])])
        return run_record("t", run_id)

    transport.on["send"] = send
    return thread


def sent(transport: StreamTransport) -> Any:
    return next(request for name, request in reversed(transport.calls) if name == "send")


async def test_a_message_shows_at_once_and_the_admitted_one_takes_its_place(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    handle = client.thread("t")
    await handle.refresh()
    async with asyncio.timeout(SECONDS):
        sending = asyncio.ensure_future(handle.send("hello", metadata={"topic": "x"}))
        await asyncio.sleep(0)
        (pending,) = handle.get_state().messages
        assert is_optimistic_input_message(pending)
        assert (pending.role, pending.text, pending.metadata["topic"]) == ("user", "hello", "x")
        assert pending.metadata.pai.status == "pending"
        assert pending.metadata.pai.run_id is None
        run = await sending
    (message,) = handle.get_state().messages
    assert not is_optimistic_input_message(message)
    assert message.id == pending.id
    assert message.metadata.pai.run_id == run.run_id


async def test_a_message_whose_send_fails_goes_again(client: AgentClient, transport: StreamTransport) -> None:
    transport.add(FakeThread())
    handle = client.thread("t")

    def busy(_: Any, request: Any) -> Any:
        assert len(handle.get_state().messages) == 1
        raise ThreadBusy("running", active_run_id="run_1")

    transport.on["send"] = busy
    with pytest.raises(ThreadBusy) as raised:
        await handle.send("hello")
    assert raised.value.active_run_id == "run_1"
    assert handle.get_state().messages == ()


async def test_a_send_that_is_cancelled_leaves_no_message(client: AgentClient, thread: FakeThread) -> None:
    handle = client.thread("t")
    sending = asyncio.ensure_future(handle.send("hello"))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert handle.get_state().messages == ()


async def test_pending_messages_reach_those_who_watch(client: AgentClient, thread: FakeThread) -> None:
    handle = client.thread("t")
    seen: list[str] = []
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        sending = asyncio.ensure_future(handle.send("hello"))
        async for state in states:
            seen += [type(message).__name__ for message in state.messages]
            if "PaiCanonicalMessage" in seen:
                break
        await sending
    assert seen[0] == "PaiPendingInputMessage"


@pytest.mark.parametrize("queued", [False, True])
async def test_a_message_that_arrives_before_the_answer_to_its_send_shows_once(
    client: AgentClient, transport: StreamTransport, queued: bool
) -> None:
    thread = transport.add(FakeThread())
    answer = asyncio.Event()
    plain = transport.send

    async def send(thread_id: str, request: Any, *, key: str) -> Any:
        result = await plain(thread_id, request, key=key)
        await answer.wait()
        return result

    def admit(_: Any, request: Any) -> Any:
        message = user_message(request.message_id, "hello")
        if queued:
            item = {"queueItemId": "q", "runId": "run_1", "mode": "queue", "messages": [message], "createdAt": AT}
            thread.commit(queue={"items": [item], "canRecall": True}, runs=[run_record("t", status="queued")])
        else:
            thread.commit(messages=[message], runs=[run_record("t")])
        return run_record("t")

    transport.send = send  # type: ignore[method-assign]
    transport.on["send"] = admit
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        sending = asyncio.ensure_future(handle.send("hello"))
        async for state in states:
            if state.runs:
                break
        assert [type(message).__name__ for message in state.messages] == ([] if queued else ["PaiCanonicalMessage"])
        answer.set()
        await sending


async def test_a_mutation_returns_when_the_watch_holds_what_it_did_without_asking_again(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        await handle.send("hello")
        assert len(handle.get_state().messages) == 1
        assert transport.reads == 0


async def test_a_mutation_whose_publication_was_lost_is_found_by_asking(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())

    def stop(_: Any, request: Any) -> Any:
        thread.commit(lost=True, error={"code": "stopped", "message": "x", "at": AT})
        return {}

    transport.on["stop_thread"] = stop
    handle = client.thread("t")
    async with asyncio.timeout(SECONDS), handle.watch() as states:
        await anext(states)
        result = await handle.stop()
    assert result.state.error is not None
    assert transport.reads == 1


async def test_a_send_that_was_accepted_succeeds_even_when_the_state_cannot_be_read(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    def down() -> None:
        raise TransportError("down")

    transport.before_read = down
    handle = client.thread("t")
    run = await handle.send("hello", message_id="m")
    assert run.run_id == "run_1"
    assert isinstance(handle.get_state().messages[0], PaiPendingInputMessage)
    transport.before_read = None
    assert not is_optimistic_input_message((await handle.refresh()).messages[0])


async def test_a_queued_input_is_in_the_queue_and_not_in_the_transcript(
    client: AgentClient, transport: StreamTransport
) -> None:
    thread = transport.add(FakeThread())
    thread.begin()

    def queue(_: Any, request: Any) -> Any:
        item = {
            "queueItemId": "q1",
            "runId": "run_2",
            "mode": request.queue.mode,
            "messages": [user_message(request.message_id, "later", "run_2")],
            "createdAt": AT,
        }
        thread.commit(queue={"items": [item], "canRecall": True}, runs=[run_record("t", "run_2", "queued")])
        return {"run": run_record("t", "run_2", "queued"), "queueItemId": "q1"}

    def recall(_: Any, queue_item_id: str) -> Any:
        assert queue_item_id == "q1"
        thread.commit(queue={"items": [], "canRecall": False}, runs=[run_record("t", "run_2", "cancelled")])
        return run_record("t", "run_2", "cancelled")

    transport.on |= {"send": queue, "recall": recall}
    handle = client.thread("t")
    run = await handle.send("later", queue=SendQueueOptions(mode="queue", merge="none"))
    assert run.run_id == "run_2"
    state = handle.get_state()
    assert [message.id for message in state.messages] == ["in_1", "out_1"]
    (item,) = state.queue.items
    assert (item.messages[0].text, item.mode, state.queue.can_recall) == ("later", "queue", True)
    result = await item.recall()
    assert result.state.queue.items == ()
    assert result.run is not None
    assert result.run.run_id == "run_2"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("steer", {"mode": "steer", "merge": "none"}),
        ({"mode": "queue", "merge": "last"}, {"mode": "queue", "merge": "last"}),
        (SendQueueOptions(mode="steer"), {"mode": "steer", "merge": "none"}),
    ],
)
def test_how_an_input_waits_is_a_word_or_an_object(given: SendQueue, sent: dict[str, str]) -> None:
    options = queue_options(given)
    assert options is not None
    assert options.model_dump() == sent


@pytest.mark.parametrize("given", ["later", {"mode": "steer", "merge": "all"}, {"merge": "last"}, 5])
def test_another_way_to_wait_is_refused_before_it_is_sent(given: Any) -> None:
    with pytest.raises(ValidationFailed, match=r"^queue"):
        queue_options(given)


async def test_a_stop_gives_back_the_inputs_that_it_dropped(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    item = {
        "queueItemId": "q1",
        "runId": "run_2",
        "mode": "queue",
        "messages": [user_message("m2", "later", "run_2")],
        "createdAt": AT,
    }

    def stop(_: Any, request: Any) -> Any:
        assert (request.reason, request.continue_with) == ("enough", "steer")
        thread.commit(activeRunId=None)
        return {"cancelled": [item]}

    transport.on["stop_thread"] = stop
    result = await client.thread("t").stop(reason="enough", continue_with="steer")
    assert result.run is None
    assert result.cancelled[0].messages[0].text == "later"


class Topic(BaseModel):
    topic: str


@dataclass
class Note:
    text: str


@pytest.mark.parametrize(
    ("given", "parts", "metadata"),
    [
        ({"message": "hi"}, [{"type": "text", "text": "hi"}], None),
        ({"text": "hi", "metadata": Topic(topic="x")}, [{"type": "text", "text": "hi"}], {"topic": "x"}),
        ({"message": {"text": "hi", "metadata": {"a": None}}}, [{"type": "text", "text": "hi"}], {"a": None}),
        (
            {"attachments": ["f1", UploadedFile(file_id="f2", media_type="image/png"), {"fileId": "f3"}]},
            [{"type": "attachment", "fileId": file_id} for file_id in ("f1", "f2", "f3")],
            None,
        ),
        (
            {"message": {"parts": [{"type": "file", "url": "data:,x", "mediaType": "text/plain"}]}},
            [{"type": "file", "url": "data:,x", "mediaType": "text/plain"}],
            None,
        ),
        (
            {"message": UserMessageInput.read({"parts": [{"type": "text", "text": "hi"}], "metadata": {"b": 1}})},
            [{"type": "text", "text": "hi"}],
            {"b": 1},
        ),
    ],
)
async def test_every_form_of_input_becomes_the_same_request(
    client: AgentClient, transport: StreamTransport, given: dict[str, Any], parts: Any, metadata: Any
) -> None:
    transport.add(FakeThread())
    transport.on["send"] = lambda thread, request: run_record("t")
    await client.thread("t").send(**given)
    message = sent(transport).wire()["message"]
    assert message["parts"] == parts
    assert message.get("metadata") == metadata


@pytest.mark.parametrize(
    "given",
    [
        {"message": "a", "text": "b"},
        {"message": {"parts": []}},
        {"message": {"parts": [{"type": "video"}]}},
        {"message": {"text": "a", "colour": "red"}},
        {"text": "a", "metadata": {"x": float("nan")}},
        {"text": "a", "metadata": {"x": object()}},
        {"text": "a", "message_id": "no spaces"},
        {"text": "a", "queue": {"mode": "sometimes"}},
        {"attachments": [{"fileId": None}]},
    ],
)
async def test_input_that_is_wrong_is_refused_before_anything_shows(
    client: AgentClient, transport: StreamTransport, given: dict[str, Any]
) -> None:
    handle = client.thread("t")
    with pytest.raises(ValidationFailed):
        await handle.send(**given)
    assert handle.get_state().messages == ()
    assert transport.calls == []


async def test_an_uploaded_file_shows_as_an_attachment_while_its_message_is_pending(
    client: AgentClient, thread: FakeThread
) -> None:
    handle = client.thread("t")
    file = UploadedFile(file_id="f1", media_type="image/png", filename="a.png", byte_size=3)
    sending = asyncio.ensure_future(handle.send(text="look", attachments=[file]))
    await asyncio.sleep(0)
    part = handle.get_state().messages[0].parts[1]
    assert isinstance(part, PaiAttachmentPart)
    assert (part.type, part.file_id, part.media_type, part.filename) == ("attachment", "f1", "image/png", "a.png")
    await sending


async def test_explicit_options_win_over_the_dynamic_and_those_over_the_static_context(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    tool = {"name": "pick", "description": "", "inputSchema": {"type": "object"}, "outputSchema": {}}
    dynamic = [RequestContext(), RequestContext(client_data={"from": "dynamic"})]
    handle = client.thread(
        "t",
        client_data={"from": "static"},
        client_tools=[tool],
        request_context=lambda: dynamic.pop(0) if dynamic else RequestContext(client_data={"from": "dynamic"}),
    )
    await handle.send("one")
    assert (sent(transport).client_data, sent(transport).client_tools) == ({"from": "static"}, [tool])
    await handle.send("two")
    assert sent(transport).client_data == {"from": "dynamic"}
    await handle.send("three", client_data=Note(text="explicit"), client_tools=[])
    assert (sent(transport).client_data, sent(transport).client_tools) == ({"text": "explicit"}, [])
    await handle.send("four", client_data=None)
    assert sent(transport).client_data is None


async def test_a_retry_regenerates_the_run_of_the_latest_input(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    handle = client.thread("t")
    with pytest.raises(RegenerateInvalid):
        await handle.retry()
    thread.begin()
    thread.finish()
    await handle.refresh()
    transport.on["regenerate"] = lambda _, request: run_record("t", "run_2")
    assert (await handle.retry()).run_id == "run_2"
    assert transport.calls[-1][1].wire() == {"runId": "run_1"}
    assert (await handle.run("run_1").regenerate()).run_id == "run_2"
    await handle.regenerate(message_id="in_1", replacement="better")
    assert transport.calls[-1][1].wire() == {
        "messageId": "in_1",
        "replacement": {"parts": [{"type": "text", "text": "better"}]},
    }


async def test_a_run_is_stopped_by_its_own_id(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()

    def stop(_: Any, request: Any) -> Any:
        thread.finish(status="cancelled")
        return run_record("t", status="cancelled")

    transport.on["stop_run"] = stop
    result = await client.thread("t").run("run_1").stop(reason="no")
    assert transport.calls[-1][1][0] == "run_1"
    assert result.run is not None
    assert result.state.runs[0].status == "cancelled"


async def test_a_rename_returns_the_state_with_the_new_title(client: AgentClient, transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    title = {"value": "New", "source": "user", "updatedAt": AT}

    def rename(_: Any, request: Any) -> Any:
        from pai.client import ThreadSummary

        thread.commit(thread={"threadId": "t", "version": "v1", "status": "idle", "metadata": {}, "title": title})
        return ThreadSummary.read(
            {"threadId": "t", "version": "v1", "status": "idle", "revision": 1, "createdAt": AT, "updatedAt": AT}
        )

    transport.on["rename"] = rename
    state = await client.thread("t").rename("New")
    assert state.thread.title is not None
    assert state.thread.title.value == "New"
    with pytest.raises(ValidationFailed):
        await client.thread("t").rename("")


async def test_every_mutation_has_a_key_of_its_own(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    handle = client.thread("t")
    await handle.send("one")
    await handle.send("two")
    assert len({key for key in transport.keys if key}) == 2


async def test_commands_are_called_by_name(client: AgentClient, transport: StreamTransport) -> None:
    transport.on["command"] = lambda _, request: {"echo": request[1].input}
    commands = client.thread("t", client_data={"a": 1}).commands
    assert await commands.archive(Topic(topic="x")) == {"echo": {"topic": "x"}}
    assert await commands["archive"]() == {"echo": None}
    name, request = transport.calls[-1][1]
    assert (name, request.client_data) == ("archive", {"a": 1})


async def test_tool_data_may_be_any_json_null_too(client: AgentClient, transport: StreamTransport) -> None:
    transport.add(FakeThread())
    transport.on["tool_data"] = lambda _, request: {}
    handle = client.thread("t")
    for value in (None, 0, {"percent": 5}):
        await handle.write_tool_data(message_id="m", tool_call_id="c", name="progress", value=value)
        assert transport.calls[-1][1].wire() == {
            "messageId": "m",
            "toolCallId": "c",
            "name": "progress",
            "value": value,
        }


@pytest.mark.parametrize("thread_id", ["", "a/b", "../x", "a b", ".."])
async def test_what_cannot_be_an_id_names_no_thread(polled: PolledTransport, thread_id: str) -> None:
    with pytest.raises(ValidationFailed) as raised:
        create_agent_client(polled).thread(thread_id)
    assert [error.path for error in raised.value.errors] == ["threadId"]


async def test_a_send_needs_something_to_say(polled: PolledTransport) -> None:
    with pytest.raises(ValidationFailed, match="give a message, a text or attachments"):
        await create_agent_client(polled).thread("t").send()
    assert polled.calls == []
