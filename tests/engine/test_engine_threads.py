"""Threads as things: list, rename, delete and re-create."""

import asyncio

import pytest
from engine_parts import Engine, text_of

from pai.engine import api
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import NotFound, ValidationFailed
from pai.protocol.requests import RenameRequest
from support.waiting import wait_until


async def test_pages_of_a_list_neither_miss_nor_repeat_threads_of_the_same_moment(engine: Engine) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        await engine.run(thread=name)
    await engine.execute("UPDATE thread SET listed_at = 1000")
    seen: list[str] = []
    token = None
    while True:
        page = await api.list_threads(engine.runtime, engine.caller(), page_token=token, limit=2)
        seen += [item.thread_id for item in page.items]
        if len(seen) == 2:
            await engine.run(thread="new")
        token = page.next_page_token
        if token is None:
            break
    assert sorted(seen) == names


async def test_a_list_shows_the_latest_activity_first_and_filters(engine: Engine) -> None:
    await engine.run(thread="a")
    engine.turns.append(tool_call("c1", "pick", {"title": "x"}))
    await engine.send(thread="b")
    await engine.actions("b")
    page = await api.list_threads(engine.runtime, engine.caller())
    assert [item.thread_id for item in page.items] == ["b", "a"]
    waiting = await api.list_threads(engine.runtime, engine.caller(), status="waiting")
    assert [item.thread_id for item in waiting.items] == ["b"]
    assert (await api.list_threads(engine.runtime, engine.caller("bob"))).items == []


@pytest.mark.parametrize("token", ["", "x", "é", "bnVsbA", "WzEsMl0", "W251bGwsInRoXzEiXQ"])
async def test_a_page_token_that_is_none_is_refused(engine: Engine, token: str) -> None:
    with pytest.raises(ValidationFailed):
        await api.list_threads(engine.runtime, engine.caller(), page_token=token)


async def test_a_rename_is_a_users_title(engine: Engine) -> None:
    await engine.run("the first words")
    await api.rename(engine.runtime, engine.caller(), "t", RenameRequest(title="  Mine  "))
    title = (await engine.state())["thread"]["title"]
    assert (title["value"], title["source"]) == ("Mine", "user")
    with pytest.raises(ValidationFailed):
        await api.rename(engine.runtime, engine.caller(), "t", RenameRequest(title="  "))
    with pytest.raises(NotFound):
        await api.rename(engine.runtime, engine.caller(), "none", RenameRequest(title="x"))


async def test_a_thread_is_deleted_at_once_and_nothing_of_it_appears_in_the_next_one(engine: Engine) -> None:
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=text(["old", "older"]), gate=gate, gate_at=2))
    old = (await engine.send("old input", messageId="m1", key="k1")).result
    await wait_until(lambda: engine.model.requests)
    await api.delete(engine.runtime, engine.caller(), "t")
    assert await api.get_state(engine.runtime, engine.caller(), "t") is None
    await api.delete(engine.runtime, engine.caller(), "t")
    engine.turns.append("new answer")
    new = (await engine.send("new input", messageId="m1", key="k1")).result
    assert new.version != old.version
    gate.set()
    state = await engine.idle()
    assert [text_of(message) for message in state["messages"]] == ["new input", "new answer"]
    for worker in engine.workers:
        await worker.quiet()
    log = await engine.runtime.log.read_after(old.version, sequence=0)
    assert log.state == "deleted"
    assert await api.revisions(engine.runtime, [old.version, new.version]) == {
        new.version: (await engine.thread()).revision
    }


async def test_deleting_while_a_run_commits_leaves_no_row_behind(engine: Engine) -> None:
    for round_ in range(10):
        name = f"t{round_}"
        await engine.send(thread=name)
        await asyncio.gather(
            api.delete(engine.runtime, engine.caller(), name),
            api.get_state(engine.runtimes[1], engine.caller(), name),
        )
    for worker in engine.workers:
        await worker.quiet()
    async with engine.runtime.store.read() as connection:
        from sqlalchemy import text as sql

        for table in ("thread", "run", "message", "step", "queue_item", "receipt", "journal"):
            assert (await connection.execute(sql(f"SELECT count(*) FROM {table}"))).scalar_one() == 0, table
