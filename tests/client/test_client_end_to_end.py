"""The client against everything real, API, worker, log and database: over HTTP, directly, and without a hub."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pai.client import (
    AgentClient,
    PaiDataPart,
    PaiReasoningPart,
    PaiToolPart,
    PendingActionView,
    RunStatus,
    Thread,
    ThreadHeadChanged,
    ThreadHeadRemoved,
    ThreadState,
    ToolState,
    create_agent_client,
    create_direct_transport,
    create_http_transport,
    is_pai_tool_part,
)
from pai.demo import ArchiveResult, Decision, PickedFile, Progress, agent, registry
from pai.engine import api
from pai.engine.runtime import Runtime
from pai.fold.projection import project
from pai.log.hub import Hub
from pai.protocol.errors import (
    ActionNotPending,
    NotFound,
    RunGone,
    RunNotActive,
    ThreadBusy,
    ThreadDeleted,
    ValidationFailed,
)
from pai.protocol.identity import Identity
from pai.settings import Settings
from support.dev_server import DevServer, dev_server
from support.waiting import wait_until

SECONDS = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("client") / "home") as running:
        yield running


@asynccontextmanager
async def connected(server: DevServer, kind: str, contract: Any = agent) -> AsyncIterator[AgentClient]:
    if kind == "http":
        async with create_agent_client(create_http_transport(f"{server.url}/api/pai/main"), contract) as client:
            yield client
        return
    identity = Identity(subject="anonymous")
    async with (
        Runtime.open(Settings(home=server.home), registry) as runtime,
        Hub(runtime.log, revisions=partial(api.revisions, runtime)) as hub,
    ):
        transport = create_direct_transport(runtime, identity, "main", hub=hub if kind == "direct" else None)
        yield create_agent_client(transport, contract)


@pytest.fixture(params=["http", "direct", "polled"])
async def client(request: pytest.FixtureRequest, server: DevServer) -> AsyncIterator[AgentClient]:
    async with connected(server, request.param) as client:
        yield client


@pytest.fixture
def thread(client: AgentClient) -> Thread:
    return client.thread(client.new_thread_id())


async def snapshot(client: AgentClient, thread_id: str) -> Any:
    return await client._transport.get_thread_state(thread_id)


async def equal_to_the_server(client: AgentClient, state: ThreadState) -> None:
    truth = await snapshot(client, state.thread.thread_id)
    assert [message.raw for message in state.messages] == [project(message) for message in truth.messages]  # type: ignore[union-attr]
    assert [run.wire() for run in state.runs] == [run.wire() for run in truth.runs]
    assert (state.active_run_id, state.usage, state.error) == (truth.active_run_id, truth.usage, truth.error)


async def comes_to_equal_the_server(client: AgentClient, thread: Thread) -> None:
    """For a thread with a call that was cut off: what that has cost is counted when it is over, idle or not."""

    async def equal() -> bool:
        try:
            await equal_to_the_server(client, thread.get_state())
        except AssertionError:
            await thread.refresh()
            return False
        return True

    await wait_until(equal)


def actions_of(thread: Thread, state: ThreadState) -> list[PendingActionView]:
    return [
        action
        for message in state.messages
        for part in message.parts
        if is_pai_tool_part(part) and (action := thread.get_pending_action(message, part))
    ]


async def test_an_answer_with_thoughts_and_a_tool(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send("think about the weather in Berlin")
        interval = timedelta(milliseconds=50)
        seen = [state async for state in run.watch(stop_on="idle", interval=interval)]
    state = seen[-1]
    await equal_to_the_server(client, state)
    done = state.run(run.run_id)
    assert done is not None
    assert (done.status, done.finish_reason) == (RunStatus.completed, "stop")
    parts = [part for message in state.messages for part in message.parts]
    assert any(isinstance(part, PaiReasoningPart) and part.text for part in parts)
    (tool,) = [part for part in parts if isinstance(part, PaiToolPart)]
    assert tool.state is ToolState.output_available
    assert tool.input.city == "Berlin"
    assert tool.output.city == "Berlin"
    texts = [sum(len(message.text) for message in state.messages) for state in seen]
    assert texts == sorted(texts)


async def test_an_approval_is_found_answered_and_answered_only_once(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send("publish My post")
        state = await run.wait_until_blocked()
        assert state.active_run_id is None
        (action,) = actions_of(thread, state)
        assert (action.name, action.input.title) == ("publish_post.approval", "My post")
        with pytest.raises(ThreadBusy) as busy:
            await thread.send("and now?")
        assert busy.value.pending_actions == [action.ref.wire()]
        with pytest.raises(ValidationFailed):
            await action.submit({"approved": "true"})
        result = await action.submit(Decision(approved=True, comment="fine"))
        assert result.run is not None
        state = await result.run.wait_until_idle()
        with pytest.raises(ActionNotPending):
            await action.cancel()
        await equal_to_the_server(client, state)
        (tool,) = [part for message in state.messages for part in message.parts if isinstance(part, PaiToolPart)]
        assert tool.output.url == "https://example.com/posts/my-post"
        assert tool.suspensions[0].resume == Decision(approved=True, comment="fine")
        assert thread.get_pending_action(state.messages[1], tool) is None


async def test_a_client_tool_and_an_external_one_are_answered_with_outputs(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send('call pick_file {"purpose": "x"}\nthen call open_ticket {"title": "a", "body": "b"}')
        (pick,) = actions_of(thread, await run.wait_until_blocked())
        assert (pick.name, pick.ref.action_id) == ("pick_file.output", pick.origin.tool_call_id)
        await pick.submit(PickedFile(filename="a.txt"))
        (ticket,) = actions_of(thread, await run.wait_until_blocked())
        assert ticket.name == "open_ticket.output"
        await ticket.fail({"message": "No printer.", "code": "PRINTER", "detail": {"tray": 1}})
        state = await run.wait_until_idle()
    await equal_to_the_server(client, state)
    picked, failed = [part for message in state.messages for part in message.parts if isinstance(part, PaiToolPart)]
    assert picked.output == PickedFile(filename="a.txt")
    assert failed.state is ToolState.output_error
    assert failed.error is not None
    assert (failed.error.code, failed.error.detail) == ("PRINTER", {"tray": 1})


async def test_progress_is_tool_data_and_comes_while_the_tool_runs(client: AgentClient, thread: Thread) -> None:
    percents: list[int] = []
    async with asyncio.timeout(SECONDS):
        run = await thread.send('call count {"to": 3, "seconds": 0.1}')
        async for state in run.watch(stop_on="idle", interval=timedelta(milliseconds=20)):
            for message in state.messages:
                for part in message.parts:
                    if isinstance(part, PaiToolPart) and "progress" in part.data:
                        value = part.data["progress"]
                        assert isinstance(value, Progress)
                        percents.append(value.percent)
    assert percents == sorted(percents)
    assert percents[-1] == 100
    await equal_to_the_server(client, thread.get_state())


async def test_a_stop_frees_the_thread_and_a_run_is_stopped_only_while_it_is_active(
    client: AgentClient, thread: Thread
) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send("count to 5000")
        await run.wait_until_status("running")
        result = await run.stop(reason="enough")
        state = result.state.run(run.run_id)
        assert state is not None
        assert (state.status, state.reason) == (RunStatus.cancelled, "enough")
        with pytest.raises(RunNotActive):
            await run.stop()
        again = await thread.send("count to 3")
        await again.wait_until_idle()
        await comes_to_equal_the_server(client, thread)


async def test_threads_are_listed_found_renamed_and_deleted(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        assert await client.threads.find(thread.thread_id) is None
        run = await thread.send("count to 2", thread={"category": "mine", "title": "First"})
        await run.wait_until_idle()
        page = await client.threads.list(category="mine", limit=1)
        assert page.items[0].thread_id == thread.thread_id
        state = await thread.rename("Second")
        assert state.thread.title is not None
        assert (state.thread.title.value, state.thread.title.source) == ("Second", "user")
        found = await client.threads.find(thread.thread_id)
        assert found is not None
        assert found.get_state().thread.title == state.thread.title
        waiting = asyncio.ensure_future(found.run("run_of_nobody").wait_until_idle())
        async with found.watch() as states:
            await anext(states)
            await client.threads.delete(thread.thread_id)
            with pytest.raises(ThreadDeleted):
                await waiting
        with pytest.raises(NotFound):
            await client.threads.rename(thread.thread_id, "Third")
        again = await thread.send("count to 1")
        assert [len(message.parts) > 0 for message in (await again.wait_until_idle()).messages] == [True, True]


async def test_texts_that_no_database_takes_are_cleaned_on_every_transport(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send("count to 1", thread={"title": "a\0b", "category": "c\0d"})
        state = await run.wait_until_idle()
        assert state.thread.title is not None
        assert state.thread.title.value == "a\N{REPLACEMENT CHARACTER}b"
        page = await client.threads.list(category="c\0d", limit=1)
        assert page.items[0].category == "c\N{REPLACEMENT CHARACTER}d"
        state = await thread.rename("b\0a")
        assert state.thread.title is not None
        assert state.thread.title.value == "b\N{REPLACEMENT CHARACTER}a"


async def test_a_queued_input_waits_its_turn_or_is_recalled(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        first = await thread.send("count to 200")
        later = await thread.send("count to 2", queue={"mode": "queue", "merge": "none"})
        never = await thread.send("count to 3", queue={"mode": "queue", "merge": "none"})
        state = await thread.refresh()
        assert [item.run_id for item in state.queue.items] == [later.run_id, never.run_id]
        assert [message.text for message in state.messages if message.role == "user"] == ["count to 200"]
        result = await state.queue.items[1].recall()
        assert [item.run_id for item in result.state.queue.items] == [later.run_id]
        await first.stop()
        state = await later.wait_until_idle()
        assert [message.text for message in state.messages if message.role == "user"] == ["count to 200", "count to 2"]
        recalled = state.run(never.run_id)
        assert recalled is None or recalled.status is RunStatus.cancelled
        await comes_to_equal_the_server(client, thread)


async def test_a_retry_replaces_what_came_of_the_latest_input_and_ends_waits_on_it(
    client: AgentClient, thread: Thread
) -> None:
    async with asyncio.timeout(SECONDS):
        first = await thread.send("count to 2")
        await first.wait_until_idle()
        second = await thread.retry()
        state = await second.wait_until_idle()
        assert [message.text.strip() for message in state.messages] == ["count to 2", "1 2"]
        with pytest.raises(RunGone):
            await first.wait_until_idle()
        third = await thread.regenerate(message_id=state.messages[0].id, replacement="count to 3")
        state = await third.wait_until_idle()
        assert [message.text.strip() for message in state.messages] == ["count to 3", "1 2 3"]
        await equal_to_the_server(client, state)


async def test_a_command_answers_with_its_declared_type(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        await (await thread.send("count to 1")).wait_until_idle()
        assert await thread.commands.archive() == ArchiveResult(archived=True)
        assert (await thread.refresh()).thread.metadata == {"archived": True}


@pytest.mark.parametrize("kind", ["http", "direct"])
async def test_the_list_of_threads_is_watched(server: DevServer, kind: str) -> None:
    async with connected(server, kind) as client, asyncio.timeout(SECONDS):
        thread = client.thread(client.new_thread_id())
        ready = asyncio.Event()
        async with client.threads.watch_heads(on_connection_established=ready.set) as heads:
            first = asyncio.ensure_future(anext(heads))
            await ready.wait()
            await thread.send("count to 1")
            seen: list[str] = []
            event = await first
            while True:
                if isinstance(event, ThreadHeadChanged) and event.summary.thread_id == thread.thread_id:
                    seen.append(event.summary.status)
                    if event.summary.status == "idle":
                        await client.threads.delete(thread.thread_id)
                if isinstance(event, ThreadHeadRemoved) and event.thread_id == thread.thread_id:
                    break
                event = await anext(heads)
            assert "idle" in seen


async def test_a_manifest_names_the_tools(client: AgentClient) -> None:
    manifest = await client.get_manifest()
    assert {tool["name"] for tool in manifest["tools"]} == set(agent.tools)


async def test_an_unknown_agent_is_not_found(server: DevServer) -> None:
    async with create_agent_client(create_http_transport(f"{server.url}/api/pai/nobody")) as client:
        with pytest.raises(NotFound) as raised:
            await client.thread("t").refresh()
        assert raised.value.what == "agent"


@pytest.mark.slow
async def test_a_restart_of_everything_in_the_middle_of_an_answer_is_survived(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with dev_server(tmp_path_factory.mktemp("restart") / "home") as server:
        async with connected(server, "http") as client, asyncio.timeout(SECONDS):
            thread = client.thread("t")
            run = await thread.send("count to 100")
            restarted = False
            async for state in run.watch(stop_on="idle"):
                if not restarted and len(state.messages) == 2 and len(state.messages[1].text) > 20:
                    restarted = True
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
            assert restarted
            await equal_to_the_server(client, state)
            assert state.messages[1].text.split() == [str(number) for number in range(1, 101)]


async def test_a_second_watcher_that_joins_in_the_middle_sees_the_same(client: AgentClient, thread: Thread) -> None:
    async with asyncio.timeout(SECONDS):
        run = await thread.send("count to 60")
        other = client.thread(thread.thread_id)
        first, second = await asyncio.gather(run.wait_until_idle(), other.run(run.run_id).wait_until_idle())
        assert [message.raw for message in first.messages] == [message.raw for message in second.messages]  # type: ignore[union-attr]
        assert not any(isinstance(part, PaiDataPart) for message in second.messages for part in message.parts)
