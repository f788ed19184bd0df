"""A step commits on what its worker read before, unless somebody changed the thread: then it reads again."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, calls_of, text_of
from test_engine_actions import waits
from test_engine_stop import streaming

from pai.engine import api, claim, mutation
from pai.models.chunks import text, tool_call
from pai.protocol.requests import RenameRequest
from support.waiting import wait_until


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read anew, in order: the thread for a commit, or its history for a model step."""
    made: list[str] = []

    def counting(module: Any, name: str, what: str) -> None:
        real = getattr(module, name)

        async def counted(*args: Any, **more: Any) -> Any:
            made.append(what)
            return await real(*args, **more)

        monkeypatch.setattr(module, name, counted)

    counting(mutation, "lock_to_decide", "thread")
    real = claim.fetch_all

    async def fetched(connection: Any, statements: Any) -> Any:
        if any(statement is claim._HISTORY for statement, _ in statements):
            made.append("history")
        return await real(connection, statements)

    monkeypatch.setattr(claim, "fetch_all", fetched)
    return made


def on_postgresql(engine: Engine) -> bool:
    return engine.runtime.store.dialect == "postgresql"


async def test_a_run_that_nobody_disturbs_reads_nothing_again(engine: Engine, reads: list[str]) -> None:
    engine.turns += [tool_call("c1", "add", {"left": 1, "right": 2}), tool_call("c2", "add", {"left": 3, "right": 4})]
    await engine.run()
    state = await engine.settled()
    assert [text_of(message) for message in state["messages"]][-1] == "ok"
    # SQLite has no round trips to save, and reads under its lock.
    assert reads == ([] if on_postgresql(engine) else ["thread"] * 5)
    results = [part["output"] for message in engine.model.requests[-1].messages for part in calls_of(message).values()]
    assert results == [3, 7]


async def test_a_call_that_is_entered_again_and_the_model_after_it_read_nothing_again(
    engine: Engine, reads: list[str]
) -> None:
    ref = await waits(engine)
    await engine.settled()
    reads.clear()
    await engine.submit(ref, {"approved": True})
    state = await engine.idle()
    assert reads == ([] if on_postgresql(engine) else ["thread"] * 2)
    first, second = ([message["id"] for message in request.messages] for request in engine.model.requests)
    assert second == [*first, state["messages"][1]["id"]]


async def test_the_model_sees_what_the_tools_of_its_run_returned(engine: Engine) -> None:
    engine.turns += [tool_call("c1", "add", {"left": 1, "right": 2})]
    await engine.run()
    await engine.run("again")
    first, second, third = (request.messages for request in engine.model.requests)
    assert [message["id"] for message in second[:1]] == [message["id"] for message in first]
    assert [text_of(message) for message in third] == ["hello", "", "ok", "again"]
    assert calls_of(second[1])["c1"]["output"] == 3


async def test_a_commit_keeps_what_others_changed_while_the_model_spoke(engine: Engine) -> None:
    gate = await streaming(engine, text(["one ", "two"]), at=2)
    await api.rename(engine.runtime, engine.caller(), "t", RenameRequest.read({"title": "Mine"}))
    await engine.send("later", queue={"mode": "queue", "merge": "none"})
    gate.set()
    await wait_until(lambda: len(engine.model.requests) == 2)
    state = await engine.idle()
    assert state["thread"]["title"]["value"] == "Mine"
    assert [text_of(message) for message in state["messages"]] == ["hello", "one two", "later", "ok"]
    revisions = (await engine.thread()).revision
    assert revisions == 5, "the send, the title, the queued send, two commits"


async def test_a_commit_keeps_what_others_changed_while_the_tool_worked(engine: Engine) -> None:
    engine.turns.append(tool_call("c1", "hold", {"name": "a"}))
    await engine.send()
    await wait_until(lambda: engine.stage.count("hold"))
    await engine.send("at once", queue={"mode": "steer", "merge": "none"})
    engine.stage.gate("a").set()
    await wait_until(lambda: len(engine.model.requests) == 2)
    state = await engine.idle()
    assert [run["status"] for run in state["runs"]] == ["completed", "completed"]
    assert state["runs"][0]["finishReason"] == "steered"
    assert calls_of(state["messages"][1])["c1"]["state"] == "output-available"
    assert text_of(state["messages"][-1]) == "ok"


async def test_a_new_epoch_is_noticed_though_the_revision_is_the_same(engine: Engine) -> None:
    gate = await streaming(engine, text(["one ", "two"]), at=2)
    await engine.execute("UPDATE thread SET log_epoch = log_epoch + 1")
    gate.set()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "one two"
    assert (await engine.thread()).log_epoch >= 2


async def test_changes_at_the_very_moment_of_a_commit_are_kept(engine: Engine) -> None:
    """Queued sends at random moments of a run with tools: each is run, in order, and none is lost."""
    sent = 12
    engine.turns += [tool_call(f"c{n}", "add", {"left": n, "right": 1}) for n in range(6)]
    await engine.send("0")
    for number in range(1, sent):
        queue = {"mode": "queue", "merge": "none"}
        await engine.send(str(number), queue=queue, runtime=engine.runtimes[number % 2])
        await asyncio.sleep(0.002 * (number % 4))
        if number % 4 == 0:
            await engine.idle()
    state = await engine.idle()
    assert [text_of(message) for message in state["messages"] if message["role"] == "user"] == [
        str(number) for number in range(sent)
    ]
    assert {run["status"] for run in state["runs"]} == {"completed"}
