"""Triggers for an engine of tests: what they send is told apart, so that it shows when something is sent twice."""

import asyncio
import itertools
from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from engine_parts import Engine, text_of
from engine_rules import Rows
from sqlalchemy import select

from pai.contract import Agent, TriggerContext, TriggerInput
from pai.engine import api
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.triggers import fire_due
from pai.protocol.errors import IdempotencyConflict, QueueFull
from pai.protocol.identity import Identity
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.store.tables import FireState, TriggerFire, TriggerFireTable, table_of

OWNER = "default/ann"
HOUR_MS = 3_600_000
SELDOM = timedelta(days=100_000)
"""No slot of it is due in our days, so those that are due are those that were made so."""
OPS = Identity(subject="ops", trusted=True)


class Death(NamedTuple):
    """When processes are cut off: so many turns of the loop after they began, or after one has asked the trigger."""

    asked: bool
    turns: int


class Alarms:
    """Two triggers of ann's, `seldom` and `call`, on the agent `main`.

    They send something to `thread`, or to a new one, or nothing when `silent`; `queue` says how it waits.
    """

    def __init__(self) -> None:
        self.thread: str | None = None
        self.silent = False
        self.queue: Any = "queue"
        self.slots: set[int] = set()
        """Those that somebody was to claim."""
        self.answers: dict[str, tuple[dict[str, Any], Any]] = {}
        """What the calls with a key asked, and were answered."""
        self._numbers = itertools.count(1)
        self._asked = asyncio.Event()

    def attach(self, agent: Agent) -> None:
        @agent.trigger("seldom", interval=SELDOM, owner=Identity("ann", tenant="default"))
        async def seldom(ctx: TriggerContext) -> TriggerInput | None:
            return self._given()

        @agent.trigger("call", on_call=True)
        async def call(ctx: TriggerContext, words: str | None = None) -> TriggerInput | None:
            return self._given()

    def _given(self) -> TriggerInput | None:
        self._asked.set()
        number = next(self._numbers)
        return None if self.silent else TriggerInput(text=f"alarm {number}", thread_id=self.thread, queue=self.queue)

    async def ring(
        self, engine: Engine, runtimes: list[Runtime], *, again: bool = False, death: Death | None = None
    ) -> None:
        """A slot is due, and all these processes find it, or die at that; `again`: the latest one that was due before.

        When they have died, their claims run out.
        """
        if not self.slots or await self.missing(engine):
            await fire_due(runtimes[0])
        slot = max(self.slots, default=0) + (0 if again and self.slots else HOUR_MS)
        await engine.execute("UPDATE schedule SET next_at = :slot", slot=slot)
        self.slots.add(slot)
        tasks = [asyncio.create_task(fire_due(runtime)) for runtime in runtimes]
        if death is not None:
            await self._cut_off(tasks, death)
            await self.lapse(engine)
        await asyncio.gather(*tasks, return_exceptions=death is not None)

    async def lapse(self, engine: Engine) -> None:
        """The claims of fires run out."""
        await engine.execute("UPDATE trigger_fire SET due_at = 1 WHERE due_at IS NOT NULL")

    async def rest(self, engine: Engine) -> None:
        """Every slot is claimed, and every fire executed to its end."""
        while self.slots and (await self.missing(engine) or await _open(engine)):
            await self.lapse(engine)
            await fire_due(engine.runtime)

    async def missing(self, engine: Engine) -> set[int]:
        """Slots that left no record."""
        return self.slots - {fire.slot for fire in await fires_of(engine) if fire.slot is not None}

    async def call(self, engine: Engine, key: str | None, runtimes: list[Runtime], **more: Any) -> None:
        """The same call through all these processes at once: one answer for all that are not refused, and a record of
        the fire and of each refusal."""
        before = {fire.fire_id for fire in await fires_of(engine)}
        calls = (self._call(engine, runtime, key, more) for runtime in runtimes)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, QueueFull):
                raise answer
        new = [fire for fire in await fires_of(engine) if fire.fire_id not in before]
        replies = [answer for answer in answers if isinstance(answer, Reply)]
        refused = len(answers) - len(replies)
        fired = sum(not reply.replayed for reply in replies)
        assert Counter(fire.state == FireState.failed for fire in new) == Counter({True: refused, False: fired})
        if key is not None and replies:
            results = [None if reply.result is None else reply.result.wire() for reply in replies]
            _, known = self.answers.setdefault(key, (more, results[0]))
            assert results == [known] * len(results)
            assert fired <= 1, "a key fired twice"

    async def call_again(self, engine: Engine, index: int) -> None:
        """A call that was answered is answered the same and does nothing; with another input it is refused."""
        if self.answers:
            key, (more, _) = list(self.answers.items())[index % len(self.answers)]
            before = await fires_of(engine)
            await self.call(engine, key, [engine.runtimes[index % 2]], **more)
            with pytest.raises(IdempotencyConflict):
                await self._call(engine, engine.runtime, key, {**more, "input": "another"})
            assert len(await fires_of(engine)) == len(before)

    async def call_and_die(self, engine: Engine, key: str, *, death: Death, **more: Any) -> None:
        """The process dies somewhere in a call; the caller does not know what came of it, and calls again."""
        task = asyncio.create_task(self._call(engine, engine.runtime, key, more))
        await self._cut_off([task], death)
        await self.call(engine, key, engine.runtimes[1:], **more)

    async def _cut_off(self, tasks: list[asyncio.Task[Any]], death: Death) -> None:
        if death.asked:
            self._asked.clear()
            asked = asyncio.create_task(self._asked.wait())
            await asyncio.wait([asyncio.gather(*tasks, return_exceptions=True), asked], return_when="FIRST_COMPLETED")
            asked.cancel()
        for _ in range(death.turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _call(
        self, engine: Engine, runtime: Runtime, key: str | None, more: dict[str, Any]
    ) -> Reply[MutationResult | None]:
        caller = Caller(OPS, engine.agent(), OWNER)
        return await api.fire_trigger(runtime, caller, "call", TriggerRequest.read(more), key=key)


async def fires_of(engine: Engine) -> list[TriggerFire]:
    async with engine.runtime.store.read() as connection:
        rows = (await connection.execute(select(table_of(TriggerFireTable)))).mappings()
        return [TriggerFire.of(row) for row in rows]


async def check_fires(engine: Engine, threads: list[Rows]) -> None:
    """One fire for a slot and for a key; a record of each that started a run; nothing is sent twice."""
    fires = await fires_of(engine)
    slots = [(fire.trigger, fire.slot) for fire in fires if fire.slot is not None]
    keys = [fire.request_key for fire in fires if fire.request_key is not None]
    assert len(set(slots)) == len(slots), "a slot fired twice"
    assert len(set(keys)) == len(keys), "a key fired twice"
    for fire in fires:
        done, closed = fire.state == FireState.done, fire.state in (FireState.done, FireState.skipped, FireState.failed)
        assert (fire.due_at is None) == closed, f"nobody goes on with it, or somebody for ever: {fire}"
        assert (fire.run_id is not None, fire.thread_id is not None) == (done, done), fire
    recorded = {fire.run_id for fire in fires}
    started = {run.run_id for rows in threads for run in rows.runs if run.initiator == "trigger"}
    assert started <= recorded, f"runs of triggers without a record: {started - recorded}"
    said = Counter(words for rows in threads for words in _inputs(rows) if words.startswith("alarm "))
    assert set(said.values()) <= {1}, f"sent twice: {said}"


def _inputs(rows: Rows) -> list[str]:
    """What was said or waits to be said."""
    messages = [{"parts": message.parts} for message in rows.messages if message.role == "user"]
    return [text_of(message) for message in [*messages, *(one for item in rows.items for one in item.messages)]]


async def _open(engine: Engine) -> bool:
    return any(fire.due_at is not None for fire in await fires_of(engine))
