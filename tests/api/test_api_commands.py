"""Commands: typed calls on a thread over HTTP and in the same process, with what they may do and how they fail."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_parts import BASE, ServedApi, served
from pydantic import BaseModel
from test_api_bad_input import problem_of

from pai import Agent, CommandContext, Registry
from pai.client import AgentClient, create_agent_client, create_direct_transport, create_http_transport
from pai.protocol.errors import Forbidden, NotFound, ThreadBusy, ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.requests import SendQueueOptions
from pai.settings import Settings


class Reason(BaseModel):
    reason: str


class Done(BaseModel):
    title: str
    by: str
    calls: int


def agent_of(calls: list[str]) -> Agent:
    agent = Agent("main", model="demo", client_data=dict[str, int])

    @agent.command
    async def close(ctx: CommandContext, given: Reason) -> Done:
        """Use all that a command may do."""
        calls.append(given.reason)
        await ctx.thread.rename(f"Closed: {given.reason}")
        await ctx.thread.update_metadata({"reason": given.reason, "data": ctx.client_data}, private={"secret": 1})
        state = await ctx.thread.state()
        return Done(title=state["thread"]["title"]["value"], by=ctx.identity.subject, calls=len(calls))

    @agent.command
    async def say(ctx: CommandContext, words: Any) -> str:
        return await ctx.thread.send(words, queue=SendQueueOptions(mode="queue"))

    @agent.command
    async def interrupt(ctx: CommandContext) -> str:
        return await ctx.thread.send("now")

    @agent.command
    async def rename(ctx: CommandContext, title: str) -> None:
        await ctx.thread.rename(title)

    @agent.command
    def refuse() -> None:
        raise Forbidden("Not today.")

    @agent.command
    def broken() -> None:
        raise RuntimeError("secret details")

    @agent.command
    def leave() -> None:
        raise SystemExit("secret")

    @agent.command
    async def leave_now() -> None:
        raise SystemExit("secret")

    @agent.command
    def exhaust() -> None:
        raise StopIteration("secret")

    @agent.command
    def wrong() -> int:
        return "no number"  # type: ignore[return-value]

    return agent


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
async def commanded(settings: Settings, calls: list[str]) -> AsyncIterator[ServedApi]:
    named = settings.model_copy(update={"identity": "api_parts:by_header"})
    async with served(named, Registry(agent_of(calls), Agent("other", model="demo")), **{"x-user": "ann"}) as running:
        await running.send("t")
        yield running


def client_of(api: ServedApi, kind: str, user: str = "ann") -> AgentClient:
    if kind == "direct":
        transport: Any = create_direct_transport(api.state.runtime, Identity(subject=user), "main")
    else:
        transport = create_http_transport(f"{str(api.client.base_url).rstrip('/')}{BASE}", headers={"x-user": user})
    return create_agent_client(transport, agent_of([]))


@pytest.fixture(params=["http", "direct"])
async def client(request: pytest.FixtureRequest, commanded: ServedApi) -> AsyncIterator[AgentClient]:
    async with client_of(commanded, request.param) as made:
        yield made


async def test_a_command_acts_on_its_thread_for_its_caller(client: AgentClient, commanded: ServedApi) -> None:
    thread = client.thread("t")
    done = await thread.commands.close(Reason(reason="ü 😀"), client_data={"x": 1})
    assert done == Done(title="Closed: ü 😀", by="ann", calls=1)
    assert (await thread.commands["close"]({"reason": "again"})).calls == 2
    state = await thread.refresh()
    assert state.thread.title is not None
    assert (state.thread.title.value, state.thread.title.source) == ("Closed: again", "user")
    assert state.thread.metadata == {"reason": "again", "data": None}
    assert "secret" not in str(await commanded.snapshot("t"))


async def test_a_command_sends_input(client: AgentClient) -> None:
    thread = client.thread("t")
    run_id = await thread.commands.say("later")
    [item] = (await thread.refresh()).queue.items
    assert item.run_id == run_id
    with pytest.raises(ThreadBusy):
        await thread.commands.interrupt()
    assert len((await thread.refresh()).queue.items) == 1


async def test_what_cannot_be_called_is_refused(client: AgentClient, calls: list[str]) -> None:
    thread = client.thread("t")
    for wrong, what in (
        (thread.commands.nothing(), "command"),
        (client.thread("missing").commands.close(Reason(reason="x")), "thread"),
    ):
        with pytest.raises(NotFound) as missing:
            await wrong
        assert missing.value.what == what
    for bad in (None, {}, [], "x", {"reason": 1}):
        with pytest.raises(ValidationFailed) as refused:
            await thread.commands.close(bad)
        assert refused.value.errors[0].path.startswith("input")
    with pytest.raises(ValidationFailed):
        await thread.commands.close(Reason(reason="x"), client_data={"x": "no number"})
    for title in ("", " ", "x" * 10_000):
        with pytest.raises(ValidationFailed):
            await thread.commands.rename(title)
    for content in ("", " ", [], [{"type": "nothing"}], [{"type": "text"}], [{"type": "attachment", "fileId": "a b"}]):
        with pytest.raises(ValidationFailed):
            await thread.commands.say(content)
    assert not (await thread.refresh()).queue.items
    assert calls == []


async def test_what_a_command_raises_is_the_answer(client: AgentClient) -> None:
    with pytest.raises(Forbidden, match="Not today"):
        await client.thread("t").commands.refuse()


async def test_a_bug_in_a_command_tells_nobody_its_details(commanded: ServedApi) -> None:
    for name in ("broken", "wrong", "leave", "leave_now", "exhaust"):
        answer = await commanded.client.post(f"{BASE}/threads/t/commands/{name}")
        assert "secret" not in problem_of(answer, 500, "internal")["detail"]


async def test_a_command_on_somebody_elses_thread_finds_none(commanded: ServedApi, calls: list[str]) -> None:
    for kind in ("http", "direct"):
        async with client_of(commanded, kind, "ben") as stranger:
            with pytest.raises(NotFound):
                await stranger.thread("t").commands.close(Reason(reason="mine"))
    assert calls == []


async def test_bad_requests_call_nothing(commanded: ServedApi, calls: list[str]) -> None:
    path = f"{BASE}/threads/t/commands/close"
    for body in ({"input": {"reason": "x"}, "more": 1}, [], {"input": {"reason": None}}):
        problem_of(await commanded.client.post(path, json=body), 422, "validation_failed")
    problem_of(await commanded.client.post(path.replace("/t/", "/a b/")), 422, "validation_failed")
    problem_of(await commanded.client.post(path.replace("main", "other")), 404, "not_found")
    problem_of(await commanded.client.post(f"{path}s"), 404, "not_found")
    assert calls == []


async def test_a_key_gets_the_recorded_output(commanded: ServedApi, calls: list[str]) -> None:
    async def call(key: str, reason: str, thread: str = "t") -> Any:
        body = {"input": {"reason": reason}}
        path = f"{BASE}/threads/{thread}/commands/close"
        return await commanded.client.post(path, json=body, headers={"idempotency-key": key})

    first = await call("k", "x")
    assert first.json() == {"output": {"title": "Closed: x", "by": "ann", "calls": 1}}
    again = await call("k", "x")
    assert (again.status_code, again.json()) == (200, first.json())
    problem_of(await call("k", "y"), 409, "idempotency_conflict")
    assert calls == ["x"]
    assert (await call("other", "x")).json()["output"]["calls"] == 2


async def test_a_call_that_failed_is_not_recorded(commanded: ServedApi, calls: list[str]) -> None:
    headers = {"idempotency-key": "k"}
    for _ in range(2):
        answer = await commanded.client.post(f"{BASE}/threads/t/commands/refuse", headers=headers)
        problem_of(answer, 403, "forbidden")
    body = {"input": {"reason": "x"}}
    answer = await commanded.client.post(f"{BASE}/threads/t/commands/close", json=body, headers=headers)
    assert (answer.status_code, calls) == (200, ["x"])
