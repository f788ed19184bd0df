"""Finding what a tool part waits for, and answering it."""

from typing import Any

import pytest
from fake_thread import AT, FakeThread, run_record
from fake_transport import StreamTransport
from pydantic import BaseModel

from pai import Agent, Suspension
from pai.client import (
    ActionError,
    AgentClient,
    PaiToolPart,
    PendingActionView,
    SuspensionState,
    Thread,
    ToolState,
    create_agent_client,
    is_pai_tool_part,
)
from pai.protocol.errors import ActionNotPending, ValidationFailed


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool
    comment: str = ""


class PickFile(BaseModel):
    folder: str


approval = Suspension("approval", input=Draft, resume=Decision)
agent = Agent("main", model="demo")


@agent.tool(suspensions=[approval])
async def publish(title: str) -> str:
    """Publish a post."""
    return title


@agent.tool
async def search(query: str) -> list[str]:
    """Search."""
    return []


agent.client_tool("pick_file", input=PickFile, output=str)


def called(call_id: str, name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": given, **more}


def suspended(suspension_id: str, call_id: str = "c1", *, title: str = "A", **data: Any) -> dict[str, Any]:
    fields = {
        "toolCallId": call_id,
        "name": "approval",
        "input": {"title": title},
        "state": "pending",
        "createdAt": AT,
        **data,
    }
    return {"type": "data-pai-suspension", "id": suspension_id, "data": fields}


@pytest.fixture
def thread(transport: StreamTransport) -> FakeThread:
    """A run whose message has begun."""
    thread = transport.add(FakeThread())
    thread.begin()
    thread.live("out_1", {"type": "start", "messageId": "out_1"}, {"type": "start-step"})
    return thread


def waits(thread: FakeThread, *chunks: dict[str, Any], status: str = "waiting", answerable: bool | None = None) -> None:
    """`answerable`: whether there is an action; by default there is one when the run waits."""
    can = status == "waiting" if answerable is None else answerable
    thread.commit(
        chunks=[("out_1", chunk) for chunk in chunks],
        runs=[run_record("t", status=status)],
        capabilities={"canStop": True, "canRespondToActions": can},
    )


def actions_of(handle: Thread) -> list[PendingActionView | None]:
    state = handle.get_state()
    return [
        handle.get_pending_action(message, part)
        for message in state.messages
        for part in message.parts
        if is_pai_tool_part(part)
    ]


def part_of(handle: Thread, call_id: str = "c1") -> PaiToolPart:
    parts = [part for message in handle.get_state().messages for part in message.parts if is_pai_tool_part(part)]
    return next(part for part in parts if part.tool_call_id == call_id)


async def test_a_suspension_is_an_action_with_an_exact_reference(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    waits(thread, called("c1", "publish", {"title": "A"}), suspended("s1"))
    transport.on["respond"] = lambda _, request: run_record("t")
    handle = client.thread("t", client_data={"who": "me"})
    await handle.refresh()
    (action,) = actions_of(handle)
    assert action is not None
    assert (action.name, action.input) == ("publish.approval", {"title": "A"})
    assert (action.origin.suspend_name, action.origin.run_id) == ("approval", "run_1")
    result = await action.submit({"approved": True})
    assert result.run is not None
    assert result.run.run_id == "run_1"
    body = transport.calls[-1][1].wire()
    assert body.pop("responseId").startswith("response_")
    assert body == {
        "ref": {
            "kind": "tool",
            "threadId": "t",
            "toolName": "publish",
            "suspendName": "approval",
            "messageId": "out_1",
            "toolCallId": "c1",
            "runId": "run_1",
            "actionId": "s1",
            "name": "publish.approval",
        },
        "response": {"type": "submit", "payload": {"approved": True}},
        "clientData": {"who": "me"},
    }


async def test_the_output_of_a_client_tool_is_an_action_named_output(
    transport: StreamTransport, thread: FakeThread
) -> None:
    transport.on["respond"] = lambda _, request: {}
    waits(thread, called("c1", "pick_file", {"folder": "/"}), called("c2", "search", {"query": "x"}), status="running")
    handle = create_agent_client(transport, agent).thread("t")
    await handle.refresh()
    action, searching = actions_of(handle)
    assert searching is None
    assert action is not None
    assert isinstance(action.input, PickFile)
    await action.submit(None)
    body = transport.calls[-1][1].wire()
    assert (body["ref"]["name"], body["ref"]["actionId"]) == ("pick_file.output", "c1")
    assert "suspendName" not in body["ref"]
    assert body["response"] == {"type": "submit", "payload": None}


async def test_without_a_contract_outputs_are_actions_once_the_run_waits_and_dynamic_ones_at_once(
    client: AgentClient, thread: FakeThread
) -> None:
    calls = [
        called("c1", "pick_file", {}),
        called("c2", "local", {}, dynamic=True),
        called("c3", "web", {}, dynamic=True, providerExecuted=True),
    ]
    waits(thread, *calls, status="running")
    handle = client.thread("t")
    await handle.refresh()
    assert [action and action.name for action in actions_of(handle)] == [None, "local.output", None]
    waits(thread)
    await handle.refresh()
    assert [action and action.name for action in actions_of(handle)] == ["pick_file.output", "local.output", None]


async def test_a_client_that_has_read_the_manifest_knows_which_calls_wait_for_another_thread(
    transport: StreamTransport, client: AgentClient, thread: FakeThread
) -> None:
    transport.manifest = {
        "tools": [
            {"name": "pick_file", "kind": "client"},
            {"name": "research", "kind": "server"},
            {"name": "x", "kind": "new"},
        ]
    }
    waits(thread, called("c1", "research", {}), called("c2", "pick_file", {}), called("c3", "x", {}))
    handle = client.thread("t")
    await handle.refresh()
    await client.get_manifest()
    assert [action and action.name for action in actions_of(handle)] == [None, "pick_file.output", "x.output"]


async def test_a_run_that_waits_for_another_thread_has_no_action(client: AgentClient, thread: FakeThread) -> None:
    waits(thread, called("c1", "research", {}), answerable=False)
    handle = client.thread("t")
    await handle.refresh()
    assert actions_of(handle) == [None]


async def test_a_stale_message_part_or_suspension_has_no_action(client: AgentClient, thread: FakeThread) -> None:
    waits(thread, called("c1", "publish", {"title": "A"}), suspended("s1"))
    handle = client.thread("t")
    state = await handle.refresh()
    message, part = state.messages[1], part_of(handle)
    assert handle.get_pending_action(message, part) is not None
    waits(thread, suspended("s1", state="resumed", resume={"approved": False}, resolvedAt=AT), status="running")
    await handle.refresh()
    assert handle.get_pending_action(message, part) is None
    assert actions_of(handle) == [None]
    waits(thread, suspended("s2"))
    await handle.refresh()
    assert handle.get_pending_action(message, part) is None
    (second,) = actions_of(handle)
    assert second is not None
    assert second.ref.action_id == "s2"
    part = part_of(handle)
    assert [(each.suspension_id, each.state) for each in part.suspensions] == [
        ("s1", SuspensionState.RESUMED),
        ("s2", SuspensionState.PENDING),
    ]
    thread.commit(removedMessageIds=["out_1"])
    await handle.refresh()
    assert handle.get_pending_action(message, part) is None


async def test_a_settled_call_and_an_ended_run_have_no_action(client: AgentClient, thread: FakeThread) -> None:
    waits(thread, called("c1", "pick_file", {}), called("c2", "publish", {}), suspended("s2", "c2"))
    handle = client.thread("t")
    await handle.refresh()
    assert all(action is not None for action in actions_of(handle))
    waits(thread, {"type": "tool-output-available", "toolCallId": "c1", "output": 1})
    await handle.refresh()
    assert [action is None for action in actions_of(handle)] == [True, False]
    thread.finish(status="cancelled")
    await handle.refresh()
    assert actions_of(handle) == [None, None]


async def test_a_cancel_and_every_form_of_failure(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    waits(thread, called("c1", "publish", {"title": "A"}), suspended("s1"))
    transport.on["respond"] = lambda _, request: {}
    handle = client.thread("t")
    await handle.refresh()
    (action,) = actions_of(handle)
    assert action is not None
    sent: list[dict[str, Any]] = []
    await action.cancel(reason="dismissed")
    sent.append(transport.calls[-1][1].wire()["response"])
    await action.cancel()
    sent.append(transport.calls[-1][1].wire()["response"])
    for failure in (
        "gone",
        ValueError("broken"),
        KeyError(),
        {"message": "off", "code": "OFF", "detail": {"a": 1}},
        ActionError(message="x"),
    ):
        await action.fail(failure)
        sent.append(transport.calls[-1][1].wire()["response"])
    assert sent == [
        {"type": "cancel", "reason": "dismissed"},
        {"type": "cancel"},
        {"type": "fail", "error": {"message": "gone"}},
        {"type": "fail", "error": {"message": "The client could not answer."}},
        {"type": "fail", "error": {"message": "The client could not answer."}},
        {"type": "fail", "error": {"message": "off", "code": "OFF", "detail": {"a": 1}}},
        {"type": "fail", "error": {"message": "x"}},
    ]


async def test_an_answer_that_is_refused_can_be_corrected_and_one_that_came_second_raises(
    client: AgentClient, transport: StreamTransport, thread: FakeThread
) -> None:
    waits(thread, called("c1", "publish", {"title": "A"}), suspended("s1"))
    errors: list[Exception] = [ActionNotPending("resumed"), ValidationFailed.at("payload.approved", "is required")]

    def respond(_: Any, request: Any) -> Any:
        if errors:
            raise errors.pop()
        return {}

    transport.on["respond"] = respond
    handle = client.thread("t")
    await handle.refresh()
    (action,) = actions_of(handle)
    assert action is not None
    with pytest.raises(ValidationFailed):
        await action.submit({})
    with pytest.raises(ActionNotPending) as raised:
        await action.submit(Decision(approved=True))
    assert raised.value.state == "resumed"
    with pytest.raises(ValidationFailed):
        await action.submit(object())
    await action.submit(Decision(approved=True))
    assert len({request.response_id for name, request in transport.calls if name == "respond"}) == 3


async def test_a_tool_part_shows_native_states_with_everything_joined_onto_it(
    client: AgentClient, thread: FakeThread
) -> None:
    handle = client.thread("t")
    thread.live("out_1", {"type": "tool-input-start", "toolCallId": "c1", "toolName": "publish"})
    thread.live("out_1", {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"title": "A'})
    await handle.refresh()
    part = part_of(handle)
    assert (part.state, part.input, part.raw_input) == (ToolState.input_streaming, {"title": "A"}, '{"title": "A')
    waits(
        thread,
        called("c1", "publish", {"title": "A"}),
        {
            "type": "data-pai-tool-data",
            "id": "c1:progress",
            "data": {"toolCallId": "c1", "name": "progress", "value": {"percent": 10}},
        },
        suspended("s1"),
        {"type": "tool-output-error", "toolCallId": "c1", "errorText": "It failed."},
        {
            "type": "data-pai-tool-error",
            "id": "c1",
            "data": {"toolCallId": "c1", "message": "Out of paper", "code": "PAPER", "detail": {"tray": 2}},
        },
    )
    await handle.refresh()
    part = part_of(handle)
    assert (part.type, part.tool_name, part.state) == ("tool-publish", "publish", ToolState.output_error)
    assert part.error_text == "It failed."
    assert dict(part.data) == {"progress": {"percent": 10}}
    assert part.pending_suspension is part.suspensions[0]
    assert part.error is not None
    assert (part.error.message, part.error.code, part.error.detail) == ("Out of paper", "PAPER", {"tray": 2})
    kinds = [each.type for each in handle.get_state().messages[1].parts]
    assert not any(kind.startswith("data-") for kind in kinds)
