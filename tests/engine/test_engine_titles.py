"""Titles: the first words, or what a function or a model makes of them, unless a person gives one."""

from typing import Any, cast

import pytest
from engine_parts import Engine

from pai.contract import ModelTask, RunContext
from pai.engine import api
from pai.models import ScriptedModel
from pai.protocol.requests import RenameRequest, SendRequest
from support.waiting import wait_until


async def title(engine: Engine, source: str = "generated") -> str:
    """The thread's title, once it has one from `source` and every step has ended."""

    async def there() -> str | None:
        found = (await engine.state())["thread"].get("title")
        ended = all(step.state == "done" for step in await engine.steps())
        return found["value"] if ended and found is not None and found["source"] == source else None

    return cast(str, await wait_until(there))


async def quiet(engine: Engine) -> None:
    async def ended() -> bool:
        return all(step.state in ("done", "failed") for step in await engine.steps())

    await wait_until(ended)


async def test_a_thread_is_named_after_its_first_words(engine: Engine) -> None:
    await engine.run("\n  the first words\nand more")
    assert await title(engine) == "the first words"
    await engine.run("other words")
    assert await title(engine) == "the first words"


async def test_a_function_makes_a_title_of_the_first_message(engine: Engine) -> None:
    asked: list[Any] = []

    async def name(ctx: RunContext) -> str:
        asked.extend(ctx.messages)
        return f"  about\n{ctx.messages[0]['parts'][0]['text']} \0 " + "x" * 300

    engine.agent().thread_titles = name
    await engine.run("tea")
    made = await title(engine)
    assert made.startswith("about tea \N{REPLACEMENT CHARACTER} xxx")
    assert len(made) == 200
    assert [message["role"] for message in asked] == ["user"]
    await engine.run("coffee")
    await quiet(engine)
    assert len(asked) == 1, "once for a thread"


async def test_a_model_makes_a_title_and_its_cost_is_counted(engine: Engine) -> None:
    namer = ScriptedModel(["A fine title"])
    engine.agent().thread_titles = ModelTask(model=namer, instructions="Name it.", model_settings={"temperature": 0})
    await engine.run("tea")
    assert await title(engine) == "A fine title"
    [request] = namer.requests
    assert (request.instructions, request.settings) == ("Name it.", {"temperature": 0})
    assert [part["text"] for message in request.messages for part in message["parts"]] == ["tea"]
    assert len(engine.model.requests) == 1


async def test_a_persons_title_stays(engine: Engine) -> None:
    asked: list[str] = []

    async def name(ctx: RunContext) -> str:
        asked.append(ctx.thread_id)
        await engine.stage.gate("name").wait()
        return "made"

    engine.agent().thread_titles = name
    await engine.send("tea")
    await wait_until(lambda: asked)
    await api.rename(engine.runtime, engine.caller(), "t", RenameRequest(title="Mine"))
    engine.stage.gate("name").set()
    assert await title(engine, "user") == "Mine"
    assert asked == ["t"]


async def test_a_thread_that_begins_with_a_title_is_given_none(engine: Engine) -> None:
    asked: list[str] = []
    engine.agent().thread_titles = lambda ctx: asked.append(ctx.thread_id) or "made"
    request = {"message": {"parts": [{"type": "text", "text": "tea"}]}, "thread": {"title": "Mine"}}
    await api.send(engine.runtime, engine.caller(), "t", SendRequest.read(request))
    assert await title(engine, "user") == "Mine"
    assert asked == []


@pytest.mark.parametrize("rule", [lambda ctx: 1 / 0, lambda ctx: None, lambda ctx: " \n ", None])
async def test_a_thread_without_a_title_is_no_failure(engine: Engine, rule: Any) -> None:
    engine.agent().thread_titles = rule
    await engine.run("tea")
    await quiet(engine)
    state = await engine.state()
    assert state["thread"].get("title") is None
    assert state["runs"][0]["status"] == "completed"
