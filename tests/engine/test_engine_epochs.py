"""Redis may lose everything at any moment: no sequence is used twice, and everybody ends in the right state."""

import asyncio
from typing import Any

import pytest
from engine_parts import Engine, calls_of, text_of
from test_engine_stop import published, streaming

from pai.engine.publication import reopen_if_lost
from pai.log.entries import EntryKind
from pai.log.sequences import epoch_of, sequence_of
from pai.models.chunks import reasoning, text, tool_call
from pai.models.scripted import Turn
from support.waiting import wait_until

ANSWER = [
    *reasoning(["hm ", "so"], id="r1"),
    *text(["one ", "two"]),
    *tool_call("c1", "echo", {"words": "x"}, deltas=2),
]


class Watcher:
    """Everything that is ever announced about a thread."""

    def __init__(self, engine: Engine, version: str) -> None:
        self.engine = engine
        self.version = version
        self.sequences: list[int] = []
        self.resets: list[int] = []
        self.pubsub = engine.runtime.log.redis.pubsub()

    async def __aenter__(self) -> "Watcher":
        await self.pubsub.subscribe(f"pai:{{{self.version}}}:live")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pubsub.aclose()  # type: ignore[no-untyped-call]

    async def hear(self) -> None:
        """Reads what has been announced so far."""
        while (message := await self.pubsub.get_message(timeout=0.05)) is not None:
            if message["type"] != "message":
                continue
            first, *lines = message["data"].split(b"\n")
            for sequence, line in enumerate(lines, int(first)):
                self.sequences.append(sequence)
                if line.startswith(b"x\t"):
                    self.resets.append(sequence)


@pytest.mark.parametrize("position", range(len(ANSWER) + 1))
async def test_a_log_that_is_lost_in_mid_answer_goes_on_under_the_next_epoch(engine: Engine, position: int) -> None:
    gate = await streaming(engine, ANSWER, at=position)
    engine.turns.append("end")
    version = (await engine.thread()).version
    async with Watcher(engine, version) as watcher:
        before = (await engine.state())["sequence"]
        await engine.flush_log()
        gate.set()
        state = await engine.idle()
        await watcher.hear()
    assert watcher.sequences == sorted(set(watcher.sequences)), "a sequence was used twice"
    assert all(sequence > before for sequence in watcher.sequences)
    assert watcher.resets, "watchers were not told"
    assert epoch_of(state["sequence"]) == (await engine.thread()).log_epoch > 1
    assert text_of(state["messages"][1]) == "one two"
    assert calls_of(state["messages"][1])["c1"]["output"] == "x"
    assert text_of(state["messages"][2]) == "end"


async def test_a_log_that_is_lost_again_and_again_never_repeats_a_sequence(engine: Engine) -> None:
    words = [f"w{n} " for n in range(12)]
    gates = [asyncio.Event() for _ in words]
    engine.model._delay = None

    chunks = text(words)
    version = (await engine.send()).result.version
    await engine.idle()
    engine.turns.clear()
    async with Watcher(engine, version) as watcher:
        for number in range(6):
            await engine.flush_log()
            engine.turns.append(Turn(chunks=chunks, gate=gates[number], gate_at=number + 1))
            await engine.send(thread="t")
            await wait_until(lambda: not engine.turns)
            await engine.flush_log()
            gates[number].set()
            await engine.flush_log()
            await engine.idle()
        await engine.runtime.settle()
        await watcher.hear()
    assert len(watcher.sequences) == len(set(watcher.sequences))
    state = await engine.state()
    assert [text_of(message) for message in state["messages"][3::2]] == ["".join(words)] * 6


async def test_a_mutation_on_a_lost_log_opens_the_next_epoch_with_a_reset(engine: Engine) -> None:
    await engine.run()
    await engine.runtime.settle()
    await engine.flush_log()
    await engine.stop()
    await engine.runtime.settle()
    thread = await engine.thread()
    log = await engine.runtime.log.read_after(thread.version, sequence=0)
    assert (log.epoch, log.revision) == (2, thread.revision)
    assert [entry.kind for entry in log.entries] == [EntryKind.RESET]
    assert log.entries[0].sequence == sequence_of(2, 1)


async def test_of_many_writers_that_find_the_log_lost_one_opens_it(engine: Engine) -> None:
    await engine.run()
    await engine.runtime.settle()
    await engine.flush_log()
    version = (await engine.thread()).version
    async with Watcher(engine, version) as watcher:
        from pai.engine import api
        from pai.protocol.requests import RenameRequest

        await asyncio.gather(
            *(
                api.rename(engine.runtimes[n % 2], engine.caller(), "t", RenameRequest(title=f"title {n}"))
                for n in range(20)
            )
        )
        for runtime in engine.runtimes:
            await runtime.settle()
        await watcher.hear()
    assert len(watcher.sequences) == len(set(watcher.sequences))
    log = await engine.runtime.log.read_after(version, sequence=0)
    assert log.revision == (await engine.thread()).revision


async def test_a_stop_on_a_lost_log_keeps_what_was_stored_and_fences_the_worker(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    await engine.flush_log()
    await engine.stop()
    await engine.runtime.settle()
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    state = await engine.state()
    assert state["runs"][0]["status"] == "cancelled"
    log = await engine.runtime.log.read_after((await engine.thread()).version, sequence=0)
    assert all(entry.kind is not EntryKind.CHUNK or entry.revision is not None for entry in log.entries)


async def test_a_sweep_on_a_lost_log_starts_the_step_again(engine: Engine) -> None:
    gate = await streaming(engine, text(["one", "two", "three"]), at=2)
    engine.turns.append("again")
    await engine.flush_log()
    await engine.lapse()
    state = await engine.idle()
    gate.set()
    for worker in engine.workers:
        await worker.quiet()
    assert text_of((await engine.state())["messages"][1]) == "again"
    assert (await engine.state())["messages"] == state["messages"]


async def test_a_run_goes_on_when_redis_comes_back_empty(breakable: Engine, own_redis: Any) -> None:
    engine = breakable
    gate = await streaming(engine, text(["one ", "two ", "three"]), at=2)
    own_redis.stop()
    gate.set()
    await wait_until(lambda: not engine.turns)
    state = await engine.state()
    assert state["thread"]["status"] == "running"
    queued = (await engine.send("more", queue={"mode": "queue"})).result
    assert queued.run.status == "queued"
    own_redis.start()
    state = await engine.idle()
    assert [text_of(message) for message in state["messages"]] == ["hello", "one two three", "more", "ok"]


async def test_the_snapshot_in_mid_answer_survives_a_loss_once_the_worker_has_noticed(engine: Engine) -> None:
    gate, rest = asyncio.Event(), text(["one ", "two ", "three ", "four"])
    engine.turns.append(Turn(chunks=rest, gate=gate, gate_at=2))
    await engine.send()
    await published(engine, 4)
    await engine.flush_log()
    await engine.send("more", queue={"mode": "queue"})
    await engine.runtime.settle()
    gate.set()
    state = await engine.idle()
    assert text_of(state["messages"][1]) == "one two three four"


async def test_a_log_that_was_lost_while_nobody_wrote_begins_anew_once(engine: Engine) -> None:
    await engine.run()
    before = await engine.settled()
    row = await engine.thread()
    await engine.flush_log()
    opened = [await reopen_if_lost(one.log, one.store, row.version) for one in (*engine.runtimes, engine.runtime)]
    assert opened == [True, False, False]
    after = await engine.state()
    assert after["sequence"] > before["sequence"]
    assert {**after, "sequence": 0} == {**before, "sequence": 0}
    assert (await engine.thread()).log_epoch == row.log_epoch + 1


async def test_the_log_of_an_answer_that_is_being_written_is_left_to_its_writer(engine: Engine) -> None:
    gate = await streaming(engine, text(["one ", "two"]), at=2)
    version = (await engine.thread()).version
    await engine.flush_log()
    assert not await reopen_if_lost(engine.runtime.log, engine.runtime.store, version)
    gate.set()
    assert text_of((await engine.idle())["messages"][1]) == "one two"
