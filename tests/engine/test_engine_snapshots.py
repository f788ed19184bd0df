"""The snapshot is exact as of its sequence and revision, also in the middle of an answer."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from engine_parts import Engine, text_of
from engine_rules import comparable, folded
from test_engine_stop import streaming

from pai.engine import api
from pai.fold import Fold
from pai.log.entries import EntryKind
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Turn
from pai.protocol.json import loads
from support.waiting import wait_until

ANSWER = [
    *reasoning(["hm ", "so"], id="r1"),
    *text(["one ", "two"]),
    *tool_call("c1", "echo", {"words": "x" * 20}, deltas=3),
    *tool_call("c2", "pick", {"title": "x"}, deltas=2),
]


async def matches_the_log(engine: Engine, thread: str = "t") -> dict[str, Any]:
    """Compares a snapshot with the fold of everything up to its sequence; -> the snapshot."""
    state = await engine.state(thread)
    log = await engine.runtime.log.read_after(state["thread"]["version"], sequence=0)
    entries = [entry for entry in log.entries if entry.sequence <= state["sequence"]]
    assert folded(entries) == comparable(state)
    return state


@pytest.mark.parametrize("position", range(len(ANSWER) + 1))
async def test_a_snapshot_equals_the_fold_at_every_chunk_and_can_be_continued(engine: Engine, position: int) -> None:
    gate = await streaming(engine, ANSWER, at=position)
    await engine.settle()
    state = await matches_the_log(engine)
    gate.set()
    await engine.actions()
    await engine.settle()
    later = await matches_the_log(engine)
    log = await engine.runtime.log.read_after(state["thread"]["version"], sequence=state["sequence"])
    message = state["messages"][-1]
    fold = Fold(message, state["folding"].get(message["id"]))
    for entry in log.entries:
        if entry.kind is EntryKind.CHUNK and entry.message_id == message["id"]:
            fold.apply(loads(entry.body))
    assert fold.message == next(one for one in later["messages"] if one["id"] == message["id"])


async def test_snapshots_taken_all_through_a_run_are_exact_and_never_go_back(engine: Engine) -> None:
    engine.turns += [ANSWER[:-4], text(["end ", "of ", "it"])]
    await engine.send()
    last = (0, 0)
    while True:
        state = await engine.state()
        assert (state["revision"], state["sequence"]) >= last
        last = (state["revision"], state["sequence"])
        log = await engine.runtime.log.read_after(state["thread"]["version"], sequence=0)
        seen = [entry for entry in log.entries if entry.sequence <= state["sequence"]]
        if seen and max(entry.revision or 0 for entry in seen) == state["revision"]:
            assert folded(seen) == comparable(state)
        if state["thread"]["status"] == "idle":
            break


async def test_callers_that_ask_at_once_share_reads_and_see_their_own_writes(engine: Engine) -> None:
    async def write_and_read(number: int) -> None:
        name = f"t{number % 3}"
        result = (await engine.send(str(number), thread=name, queue={"mode": "queue"})).result
        assert (await engine.state(name))["revision"] >= result.revision

    await asyncio.gather(*(write_and_read(number) for number in range(12)))
    for number in range(3):
        await engine.idle(f"t{number}")
    assert not engine.runtime.reading


async def test_a_long_answer_is_stored_while_it_streams_and_the_log_is_trimmed(engine: Engine) -> None:
    settings = engine.settings.model_copy(update={"fold_chunks": 50, "log_keep": 20})
    for worker in engine.workers:
        worker.runtime.settings = settings
    words = [f"w{n} " for n in range(300)]
    gate = asyncio.Event()
    engine.turns.append(Turn(chunks=text(words), gate=gate, gate_at=200))
    await engine.send()

    async def streamed() -> bool:
        messages = (await engine.state())["messages"]
        return len(messages) > 1 and text_of(messages[1]) == "".join(words[:199])

    await wait_until(streamed)
    log = await engine.runtime.log.read_after((await engine.thread()).version, sequence=0)
    assert len(log.entries) < 100
    await engine.stop()
    assert text_of((await engine.state())["messages"][1]) == "".join(words[:199])


async def test_a_snapshot_without_redis_shows_what_is_stored(breakable: Engine, own_redis: Any) -> None:
    await breakable.run()
    own_redis.stop()
    state = await breakable.state()
    assert [text_of(message) for message in state["messages"]] == ["hello", "ok"]
    assert timedelta(0) < breakable.settings.publish_timeout


async def test_a_thread_that_does_not_exist_has_no_snapshot(engine: Engine) -> None:
    assert await api.get_state(engine.runtime, engine.caller(), "none") is None
