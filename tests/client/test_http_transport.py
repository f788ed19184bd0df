"""The HTTP transport against a server on a raw socket that loses connections."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fake_http import FakeServer, Lost
from fake_thread import AT, FakeThread, long_answer, run_record
from fake_transport import IMPATIENT

from pai.client import (
    AgentClient,
    ConnectionState,
    ThreadState,
    create_agent_client,
    create_http_transport,
    create_pai_http_client,
)
from pai.fold.projection import project
from pai.protocol.errors import (
    Forbidden,
    NotFound,
    PaiError,
    QueueFull,
    ThreadBusy,
    TransportError,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
)
from pai.protocol.json import loads
from support.waiting import wait_until

SECONDS = 20


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer().serve() as server:
        yield server


@pytest_asyncio.fixture
async def http_client(server: FakeServer) -> AsyncIterator[AgentClient]:
    async with create_agent_client(create_http_transport(server.agent_url), reconnect=IMPATIENT) as client:
        yield client


def result(thread: FakeThread, run_id: str = "run_1") -> tuple[int, Any]:
    return 202, {"run": run_record("t", run_id), "version": thread.version, "revision": thread.revision}


async def followed(client: AgentClient, thread: FakeThread) -> tuple[ThreadState, list[str]]:
    """The last state, and all texts of the second message on the way."""
    texts: list[str] = []
    async with asyncio.timeout(SECONDS), client.thread("t").watch() as states:
        async for state in states:
            texts += [message.text for message in state.messages if message.id == "out_1"]
            if state.runs and state.runs[-1].status.terminal:
                return state, texts
    raise AssertionError


@pytest.mark.parametrize("mid_event", [False, True])
@pytest.mark.parametrize("k", range(1, 40))
async def test_an_answer_that_is_cut_at_every_kth_event_loses_and_repeats_nothing(
    server: FakeServer, http_client: AgentClient, k: int, mid_event: bool
) -> None:
    thread = server.threads["t"] = FakeThread()
    thread.begin()
    server.cut_after, server.mid_event = k, mid_event
    following = asyncio.ensure_future(followed(http_client, thread))
    await wait_until(lambda: server.watches)
    answer = FakeThread()
    long_answer(answer)
    thread.become(answer)
    state, texts = await following
    assert [message.raw for message in state.messages] == [project(message) for message in answer.snapshot().messages]
    assert texts == sorted(texts, key=len)
    # Never a snapshot besides the first: every connection went on behind the last event.
    assert server.count("GET", "/threads/t") == 0
    assert server.watches.count(None) == 1
    assert len(server.watches) == 1 + (len(answer.events) - 2) // k


async def test_a_stream_without_any_byte_is_made_again(server: FakeServer) -> None:
    thread = server.threads["t"] = FakeThread()
    thread.begin()
    server.silent = True
    transport = create_http_transport(server.agent_url, quiet=timedelta(milliseconds=50))
    async with create_agent_client(transport, reconnect=IMPATIENT) as client:
        handle = client.thread("t")
        async with asyncio.timeout(SECONDS), handle.watch() as states:
            first = asyncio.ensure_future(anext(states))
            await wait_until(lambda: len(server.watches) > 1)
            server.silent = False
            assert (await first).thread.version == "v1"


async def test_a_restart_of_the_server_in_the_middle_of_an_answer_is_survived() -> None:
    thread = FakeThread()
    thread.begin()
    first = FakeServer()
    first.threads["t"] = thread
    async with first.serve():
        client = create_agent_client(create_http_transport(first.agent_url), reconnect=IMPATIENT)
        handle = client.thread("t")
        watching = handle.watch()
        await anext(watching)
    await wait_until(lambda: handle.connection is ConnectionState.reconnecting)
    second = FakeServer()
    second.threads["t"] = thread
    thread.live("out_1", {"type": "start", "messageId": "out_1"})
    thread.finish()
    async with asyncio.timeout(SECONDS), second.serve(port=int(first.url.rsplit(":", 1)[1])):
        async for state in watching:
            if state.runs[-1].status.terminal:
                break
        watching.close()
        await client.close()
    assert handle.connection is ConnectionState.idle
    assert [event["sequence"] for event in thread.events][-1] == handle._reducer.sequence


async def test_a_mutation_whose_connection_breaks_is_sent_again_with_the_same_key(
    server: FakeServer, http_client: AgentClient
) -> None:
    thread = server.threads["t"] = FakeThread()
    thread.begin()
    keys: list[str] = []

    def send(body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        keys.append(headers["idempotency-key"])
        if len(keys) < 3:
            raise Lost
        return result(thread)

    server.routes["POST", "/threads/t/send"] = send
    run = await http_client.thread("t").send("hello", message_id="m1")
    assert run.run_id == "run_1"
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_a_server_that_stays_away_is_a_transport_error(server: FakeServer, http_client: AgentClient) -> None:
    def send(body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        raise Lost

    server.routes["POST", "/threads/t/send"] = send
    with pytest.raises(TransportError) as raised:
        await http_client.thread("t").send("hello")
    assert isinstance(raised.value.__cause__, httpx.TransportError)
    assert server.count("POST", "/threads/t/send") == 4


@pytest.mark.parametrize(
    ("status", "problem", "error", "attributes"),
    [
        (
            409,
            {"code": "thread_busy", "threadStatus": "waiting", "pendingActions": [{"name": "a.output"}]},
            ThreadBusy,
            {"thread_status": "waiting", "pending_actions": [{"name": "a.output"}]},
        ),
        (422, {"code": "validation_failed", "errors": [{"path": "message", "message": "no"}]}, ValidationFailed, {}),
        (429, {"code": "queue_full", "limit": 100}, QueueFull, {"limit": 100}),
        (401, {"code": "unauthenticated", "detail": "who?"}, Unauthenticated, {"detail": "who?"}),
        (403, b"<html>", Forbidden, {}),
        (418, {"code": "teapot", "detail": "short"}, PaiError, {"code": "teapot", "status": 418}),
        (500, b"oops", TransportError, {"status": 500}),
        (200, b"not json", TransportError, {}),
        (200, {"version": 7}, TransportError, {}),
        (422, {"code": "validation_failed", "errors": "all"}, TransportError, {}),
    ],
)
async def test_every_answer_becomes_a_typed_error(
    server: FakeServer, http_client: AgentClient, status: int, problem: Any, error: type[PaiError], attributes: Any
) -> None:
    server.routes["POST", "/threads/t/send"] = lambda body, headers: (status, problem)
    with pytest.raises(PaiError) as raised:
        await http_client.thread("t").send("hello")
    assert type(raised.value) is error
    for name, value in attributes.items():
        assert getattr(raised.value, name) == value


async def test_an_unavailable_server_is_asked_again(server: FakeServer, http_client: AgentClient) -> None:
    answers: list[tuple[int, Any]] = [(503, {"code": "unavailable", "retryAfter": 0.01}), (502, b"bad gateway")]
    thread = server.threads["t"] = FakeThread()
    server.routes["GET", "/threads/t"] = lambda body, headers: answers.pop(0) if answers else (200, thread.wire())
    answers[1] = (503, {"code": "unavailable", "retryAfter": 0.01})
    assert (await http_client.thread("t").refresh()).thread.version == "v1"
    assert server.count("GET", "/threads/t") == 3
    server.routes["GET", "/threads/t"] = lambda body, headers: (503, {"code": "unavailable", "retryAfter": 0.01})
    with pytest.raises(Unavailable):
        await http_client.thread("t").refresh()


async def test_a_watch_that_is_refused_raises_and_one_that_is_no_stream_is_tried_again(
    server: FakeServer, http_client: AgentClient
) -> None:
    server.routes["GET", "/threads/t/watch"] = lambda body, headers: (403, {"code": "forbidden"})
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Forbidden):
            await anext(http_client.thread("t").watch())
        server.routes["GET", "/threads/t/watch"] = lambda body, headers: (200, {"hello": 1})
        handle = http_client.thread("t")
        async with handle.watch() as states:
            first = asyncio.ensure_future(anext(states))
            await wait_until(lambda: server.count("GET", "/threads/t/watch") > 3)
            assert isinstance(handle.connection_error, TransportError)
            server.threads["t"] = FakeThread()
            del server.routes["GET", "/threads/t/watch"]
            assert (await first).thread.version == "v1"


async def test_a_wrong_agent_is_no_missing_thread(server: FakeServer, http_client: AgentClient) -> None:
    server.routes["GET", "/threads/t"] = lambda body, headers: (404, {"code": "not_found", "what": "agent"})
    with pytest.raises(NotFound) as raised:
        await http_client.thread("t").refresh()
    assert raised.value.what == "agent"


async def test_credentials_may_be_made_for_each_request(server: FakeServer) -> None:
    tokens = iter(["one", "two", "three"])

    async def headers() -> dict[str, str]:
        return {"authorization": f"Bearer {next(tokens)}"}

    server.threads["t"] = FakeThread()
    async with create_agent_client(create_http_transport(server.agent_url, headers=headers)) as client:
        await client.thread("t").refresh()
        await client.thread("t").refresh()
    assert [request[2]["authorization"] for request in server.requests] == ["Bearer one", "Bearer two"]


async def test_every_operation_has_its_route(server: FakeServer, http_client: AgentClient) -> None:
    thread = server.threads["t"] = FakeThread()
    thread.begin()
    summary = {"threadId": "t", "version": "v1", "status": "idle", "revision": 1, "createdAt": AT, "updatedAt": AT}
    routes: dict[tuple[str, str], tuple[int, Any]] = {
        ("GET", ""): (200, {"agent": "main"}),
        ("GET", "/threads"): (200, {"items": [summary], "nextPageToken": "next"}),
        ("PATCH", "/threads/t"): (200, summary),
        ("DELETE", "/threads/t"): (204, None),
        ("POST", "/threads/t/regenerate"): result(thread),
        ("POST", "/threads/t/stop"): result(thread),
        ("POST", "/threads/t/runs/run_1/stop"): result(thread),
        ("POST", "/threads/t/tool-data"): result(thread),
        ("DELETE", "/threads/t/queue/q1"): result(thread),
        ("POST", "/threads/t/commands/archive"): (200, {"output": {"done": True}}),
        ("GET", "/threads/t/runs/run_1"): (200, run_record("t")),
        ("POST", "/files"): (201, {"fileId": "f1", "mediaType": "text/plain", "filename": "ü.txt"}),
        ("POST", "/files/f1/url"): (200, {"url": "http://x", "expiresAt": AT}),
        ("GET", "/files/f1"): (200, b"content"),
    }
    for route, answer in routes.items():
        server.routes[route] = lambda body, headers, answer=answer: answer  # type: ignore[misc]
    handle = http_client.thread("t")
    assert await http_client.get_manifest() == {"agent": "main"}
    page = await http_client.threads.list(limit=5, hidden=True)
    assert (page.items[0].thread_id, page.next_page_token) == ("t", "next")
    assert (await http_client.threads.rename("t", "New")).version == "v1"
    await http_client.threads.delete("t")
    await handle.regenerate(message_id="in_1")
    await handle.stop()
    await handle.run("run_1").stop()
    await handle.write_tool_data(message_id="m", tool_call_id="c", name="n", value=1)
    await handle.recall_queued_item("q1")
    assert await handle.commands.archive({"a": 1}) == {"done": True}
    state = await handle.run("run_1").get_state()
    assert state is not None
    assert state.run_id == "run_1"
    file = await http_client.files.upload(b"content", media_type="text/plain", filename="ü.txt", metadata={"a": 1})
    assert file.file_id == "f1"
    url = await http_client.files.url("f1", intent="download", ttl=timedelta(minutes=1))
    assert url is not None
    assert (url.url, url.expires_at) == ("http://x", AT)
    assert await (await http_client.files.read("f1", first=2, last=3)).read() == b"content"
    asked = {(method, path): (headers, body) for method, path, headers, body in server.requests}
    assert set(routes) <= set(asked)
    assert all("idempotency-key" in headers for (method, path), (headers, _) in asked.items() if method == "PATCH")
    assert asked["POST", "/files"][1] == b"content"
    assert asked["POST", "/files"][0]["x-pai-filename"] == "%C3%BC.txt"
    assert loads(asked["POST", "/files"][0]["x-pai-metadata"]) == {"a": 1}
    assert asked["GET", "/files/f1"][0]["range"] == "bytes=2-3"
    assert asked["POST", "/files/f1/url"][1] == {"intent": "download", "ttlSeconds": 60}


async def test_what_is_missing_is_none_where_the_surface_says_so(server: FakeServer, http_client: AgentClient) -> None:
    server.routes["POST", "/files/f9/url"] = lambda body, headers: (404, {"code": "not_found", "what": "file"})
    assert await http_client.files.url("f9") is None
    assert await http_client.threads.find("t") is None
    assert await http_client.thread("t").run("r").get_state() is None
    server.threads["t"] = FakeThread()
    found = await http_client.threads.find("t")
    assert found is not None
    assert found.get_state().thread.version == "v1"


async def test_an_upload_of_a_stream_is_not_sent_twice(server: FakeServer, http_client: AgentClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"con"
        yield b"tent"

    def lose(body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        raise Lost

    server.routes["POST", "/files"] = lose
    with pytest.raises(TransportError):
        await http_client.files.upload(pieces(), media_type="text/plain", byte_size=7)
    assert server.count("POST", "/files") == 1
    assert server.requests[-1][3] == b"content"


async def test_one_server_gives_clients_of_all_its_agents(server: FakeServer) -> None:
    server.routes["GET", "/api/pai"] = lambda body, headers: (200, {"agents": [{"agent": "main", "title": "Main"}]})
    server.threads["t"] = FakeThread()
    for base in (server.url, f"{server.url}/", f"{server.url}/api/pai"):
        async with create_pai_http_client(base) as pai:
            assert [(agent.agent, agent.title) for agent in await pai.list_agents()] == [("main", "Main")]
            client = pai.agent("main")
            assert (await client.thread("t").refresh()).thread.version == "v1"
            await client.close()
            assert (await client.thread("t").refresh()).thread.version == "v1"


async def test_ids_are_quoted_into_the_path(server: FakeServer) -> None:
    transport = create_http_transport(server.agent_url)
    for thread_id in ("..", "a/b", "a?b", "ü", "a~b:c"):
        assert await transport.get_thread_state(thread_id) is None
        assert server.requests[-1][1] == f"/threads/{thread_id}"
    await transport.close()
