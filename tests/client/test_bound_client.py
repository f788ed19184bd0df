"""A client that is bound to a contract reads JSON as the declared types; an unbound one gives the JSON."""

from datetime import date
from typing import Any

import pytest
from fake_thread import AT, FakeThread, model_facts, run_record
from fake_transport import StreamTransport
from pydantic import BaseModel

from pai import Agent, Suspension, ToolContext
from pai.client import PaiDataPart, PaiToolPart, create_agent_client


class Topic(BaseModel):
    topic: str


class RunTopic(BaseModel):
    topic: str = "none"


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool


class Progress(BaseModel):
    percent: int


class Published(BaseModel):
    url: str
    on: date


class Chart(BaseModel):
    points: list[int]


class Archived(BaseModel):
    count: int


agent = Agent(
    "main",
    model="demo",
    message_metadata=Topic,
    thread_metadata=Topic,
    run_metadata=RunTopic,
    ui_data={"chart": Chart},
)


@agent.tool(suspensions=[Suspension("approval", input=Draft, resume=Decision)], data={"progress": Progress})
async def publish(ctx: ToolContext, draft: Draft, on: date) -> Published:
    """Publish."""
    raise NotImplementedError


@agent.command
async def archive() -> Archived:
    """Archive."""
    return Archived(count=1)


TOPIC = {"topic": "news"}
CHUNKS: list[dict[str, Any]] = [
    {"type": "start-step"},
    {
        "type": "tool-input-available",
        "toolCallId": "c1",
        "toolName": "publish",
        "input": {"draft": {"title": "A"}, "on": "2026-01-31"},
    },
    {
        "type": "data-pai-tool-data",
        "id": "c1:progress",
        "data": {"toolCallId": "c1", "name": "progress", "value": {"percent": 10}},
    },
    {
        "type": "data-pai-suspension",
        "id": "s1",
        "data": {
            "toolCallId": "c1",
            "name": "approval",
            "input": {"title": "A"},
            "state": "resumed",
            "resume": {"approved": True},
            "createdAt": AT,
            "resolvedAt": AT,
        },
    },
    {"type": "tool-output-available", "toolCallId": "c1", "output": {"url": "/a", "on": "2026-01-31"}},
    {"type": "data-chart", "id": "x", "data": {"points": [1, 2]}},
]


@pytest.fixture
def thread(transport: StreamTransport) -> FakeThread:
    thread = transport.add(FakeThread())
    thread.begin()
    thread.live("out_1", *CHUNKS)
    thread.commit(
        thread={"threadId": "t", "version": "v1", "status": "running", "metadata": TOPIC},
        runs=[run_record("t", metadata=TOPIC)],
        messages=[{"id": "out_1", "metadata": {**TOPIC, "pai": model_facts("run_1")}}],
    )
    return thread


async def test_everything_declared_is_read_as_its_type(transport: StreamTransport, thread: FakeThread) -> None:
    state = await create_agent_client(transport, agent).thread("t").refresh()
    message = state.messages[1]
    assert state.thread.metadata == Topic(topic="news")
    assert state.runs[0].metadata == RunTopic(topic="news")
    assert message.metadata.fields == Topic(topic="news")
    assert message.metadata.topic == "news"  # type: ignore[union-attr]
    assert message.metadata["topic"] == "news"
    _, tool, data = message.parts
    assert isinstance(tool, PaiToolPart)
    assert tool.input.draft == Draft(title="A")
    assert tool.input["on"] == date(2026, 1, 31)
    assert tool.output == Published(url="/a", on=date(2026, 1, 31))
    assert tool.data["progress"] == Progress(percent=10)
    assert tool.suspensions[0].input == Draft(title="A")
    assert tool.suspensions[0].resume == Decision(approved=True)
    assert isinstance(data, PaiDataPart)
    assert (data.name, data.data) == ("chart", Chart(points=[1, 2]))


async def test_unbound_the_same_is_json(transport: StreamTransport, thread: FakeThread) -> None:
    state = await create_agent_client(transport).thread("t").refresh()
    message = state.messages[1]
    assert state.thread.metadata == state.runs[0].metadata == message.metadata.fields == TOPIC
    _, tool, data = message.parts
    assert isinstance(tool, PaiToolPart)
    assert tool.input == {"draft": {"title": "A"}, "on": "2026-01-31"}
    assert tool.output == {"url": "/a", "on": "2026-01-31"}
    assert tool.data["progress"] == {"percent": 10}
    assert tool.suspensions[0].resume == {"approved": True}
    assert isinstance(data, PaiDataPart)
    assert data.data == {"points": [1, 2]}
    with pytest.raises(AttributeError):
        _ = message.metadata.topic  # type: ignore[union-attr]


async def test_what_does_not_satisfy_its_declaration_stays_json(transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    thread.live(
        "out_1",
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "publish", "input": {"old": 1}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": "old"},
        {"type": "data-chart", "data": "old"},
        {"type": "data-unknown", "data": 1},
    )
    client = create_agent_client(transport, agent)
    assert client.thread("nowhere").get_state().thread.metadata == {}
    state = await client.thread("t").refresh()
    tool, chart, unknown = state.messages[1].parts
    assert isinstance(tool, PaiToolPart)
    assert (tool.input, tool.output) == ({"old": 1}, "old")
    assert isinstance(chart, PaiDataPart)
    assert isinstance(unknown, PaiDataPart)
    assert (chart.data, unknown.data) == ("old", 1)
    assert state.thread.metadata == {}


async def test_dynamic_tools_are_json_even_when_their_name_is_declared(transport: StreamTransport) -> None:
    thread = transport.add(FakeThread())
    thread.begin()
    given = {"draft": {"title": "A"}, "on": "2026-01-31"}
    thread.live(
        "out_1",
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "publish", "input": given, "dynamic": True},
    )
    state = await create_agent_client(transport, agent).thread("t").refresh()
    (tool,) = state.messages[1].parts
    assert isinstance(tool, PaiToolPart)
    assert (tool.type, tool.tool_name, tool.input) == ("dynamic-tool", "publish", given)


async def test_the_output_of_a_command_is_its_declared_type(transport: StreamTransport) -> None:
    transport.on["command"] = lambda _, request: {"count": 3}
    assert await create_agent_client(transport, agent).thread("t").commands.archive() == Archived(count=3)
    assert await create_agent_client(transport).thread("t").commands.archive() == {"count": 3}
