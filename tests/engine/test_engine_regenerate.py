"""Regenerate: the thread goes back to an input and runs again; what went is gone for everybody."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, text_of
from engine_rules import check_rules

from pai.engine import api
from pai.models.chunks import text, tool_call
from pai.models.scripted import Turn
from pai.protocol.errors import IdempotencyConflict, NotFound, RegenerateInvalid, ThreadBusy, ValidationFailed
from pai.protocol.requests import RegenerateRequest
from pai.protocol.usage import UsageSummary

USAGE = UsageSummary(total_tokens=10)


async def again(engine: Engine, *, key: str | None = None, **request: Any) -> Any:
    return await api.regenerate(engine.runtime, engine.caller(), "t", RegenerateRequest.read(request), key=key)


async def talked(engine: Engine) -> dict[str, Any]:
    """Two turns, the first with a tool."""
    engine.turns += [
        Turn(chunks=tool_call("c1", "echo", {"words": "x"}), usage=USAGE),
        Turn(chunks=text("one"), usage=USAGE),
        Turn(chunks=text("two"), usage=USAGE),
    ]
    await engine.run("first", messageId="m1")
    await engine.run("second", messageId="m2")
    return await engine.state()


async def test_everything_after_the_input_goes_and_is_made_anew(engine: Engine) -> None:
    before = await talked(engine)
    engine.turns.append("other")
    result = (await again(engine, messageId="m1")).result
    state = await engine.idle()
    assert [text_of(message) for message in state["messages"]] == ["first", "other"]
    assert [run["runId"] for run in state["runs"]] == [result.run.run_id]
    assert state["messages"][0]["metadata"]["pai"]["runId"] == result.run.run_id
    assert state["usage"] == before["usage"], "what was spent stays spent"
    with pytest.raises(NotFound):
        await api.get_run(engine.runtime, engine.caller(), "t", before["runs"][0]["runId"])
    await check_rules(engine)


async def test_a_replacement_changes_what_was_said(engine: Engine) -> None:
    await talked(engine)
    replacement = {"parts": [{"type": "text", "text": "instead"}]}
    await again(engine, messageId="m2", replacement=replacement)
    state = await engine.idle()
    assert [text_of(m) for m in state["messages"] if m["role"] == "user"] == ["first", "instead"]
    assert text_of(dict(engine.model.requests[-1].messages[-1])) == "instead"


async def test_the_same_message_id_still_gets_its_recorded_result(engine: Engine) -> None:
    await talked(engine)
    await again(engine, messageId="m1")
    await engine.idle()
    assert (await engine.send("second", messageId="m2")).replayed


async def test_what_is_no_target_changes_nothing(engine: Engine) -> None:
    await talked(engine)
    before = await engine.settled()
    for wrong, error in (
        ({"messageId": "none"}, NotFound),
        ({"runId": "none"}, NotFound),
        ({"messageId": before["messages"][1]["id"]}, RegenerateInvalid),
        ({}, ValidationFailed),
        ({"messageId": "m1", "runId": before["runs"][0]["runId"]}, ValidationFailed),
        ({"messageId": "m1", "replacement": {"parts": [{"type": "text", "text": " "}]}}, ValidationFailed),
    ):
        with pytest.raises(error):
            await again(engine, **wrong)
    assert await engine.state() == before
    first = await again(engine, messageId="m2", key="k")
    assert (await again(engine, messageId="m2", key="k")).result == first.result
    with pytest.raises(IdempotencyConflict):
        await again(engine, messageId="m1", key="k")
    await engine.idle()


async def test_a_busy_thread_is_not_regenerated(engine: Engine) -> None:
    await talked(engine)
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=text("x"), gate=gate))
    await engine.send("third")
    with pytest.raises(ThreadBusy):
        await again(engine, messageId="m1")
    gate.set()
    await engine.idle()


async def test_of_two_that_regenerate_at_once_one_is_refused(engine: Engine) -> None:
    await talked(engine)
    engine.post.holds = True
    answers = await asyncio.gather(again(engine, messageId="m1"), again(engine, messageId="m2"), return_exceptions=True)
    assert sum(isinstance(answer, ThreadBusy) for answer in answers) == 1
    engine.post.release()
    await engine.idle()
