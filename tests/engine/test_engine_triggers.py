"""Triggers: one run per slot in the whole cluster, one after an outage, and a row for every fire."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from alarms import SELDOM
from engine_parts import Engine, text_of
from engine_rules import check_rules
from sqlalchemy import text as sql

from pai import Agent, Identity, Registry, TriggerContext, TriggerInput
from pai.engine import api
from pai.engine.fires import drop_old_fires
from pai.engine.runtime import Caller, Runtime
from pai.engine.triggers import MOST_PER_ROUND, fire_due
from pai.models.chunks import text
from pai.models.scripted import Turn
from pai.protocol.errors import Forbidden, IdempotencyConflict, NotFound, QueueFull, ValidationFailed
from pai.protocol.requests import TriggerRequest
from pai.settings import Settings
from pai_workers.metrics import Metrics
from pai_workers.trigger_sweep import Firing, sweep_triggers
from support.waiting import wait_until

HOUR_MS = 3_600_000
OPS = Identity(subject="ops", trusted=True)


class Died(BaseException):
    """A process ended."""


class Clockwork:
    """An engine whose agent has triggers. `given` is what they send, `seen` the contexts that they were given."""

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings)
        self.given: Any = "wake up"
        self.seen: list[TriggerContext] = []
        self.engine.registry = Registry(self._agent())

    def _agent(self) -> Agent:
        agent = Agent("main", model=self.engine.model)

        @agent.trigger("hourly", interval=timedelta(hours=1), owner=Identity("ann", tenant="default"))
        async def hourly(ctx: TriggerContext) -> Any:
            return self._answer(ctx)

        @agent.trigger("call", on_call=True)
        async def call(ctx: TriggerContext, words: str | None = None) -> Any:
            return words or self._answer(ctx)

        @agent.trigger("owned", on_call=True, owner="bob")
        async def owned(ctx: TriggerContext) -> Any:
            return self._answer(ctx)

        return agent

    def _answer(self, ctx: TriggerContext) -> Any:
        self.seen.append(ctx)
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    @property
    def runtimes(self) -> list[Runtime]:
        """Three that sweep."""
        return [*(worker.runtime for worker in self.engine.workers), self.engine.runtimes[1]]

    async def overdue(self, slot: int = HOUR_MS) -> None:
        """The slots of the schedules are long past: nobody has swept for months."""
        await fire_due(self.runtimes[0])
        await self.engine.execute("UPDATE schedule SET next_at = :slot", slot=slot)

    def scheduled(self, *names: str, function: Any = None) -> None:
        """Only these triggers have a schedule, and only the slots that are made due are due."""
        agent = self.engine.agent()
        agent._triggers.pop("hourly", None)
        for name in names:
            agent.trigger(name, interval=SELDOM, owner="ann")(function or self._nothing)

    async def _nothing(self, ctx: TriggerContext) -> Any:
        return None

    async def done(self, name: str) -> list[int]:
        """The slots of a trigger whose fires were executed to their end."""
        return sorted(fire.slot for fire in await self.fires() if fire.trigger == name and fire.due_at is None)

    async def fires(self) -> list[Any]:
        async with self.engine.runtime.store.read() as connection:
            return list(
                (await connection.execute(sql("SELECT * FROM trigger_fire ORDER BY created_at, fire_id"))).all()
            )

    async def threads(self) -> list[Any]:
        return (await api.list_all_threads(self.engine.runtime, OPS, limit=100)).items

    async def fire(self, name: str = "call", *, key: str | None = None, owner: str | None = None, **more: Any) -> Any:
        caller = Caller(OPS, self.engine.agent(), owner)
        return await api.fire_trigger(self.engine.runtime, caller, name, TriggerRequest.read(more), key=key)

    async def quiet(self) -> None:
        async def done() -> bool:
            return all(thread.status == "idle" for thread in await self.threads())

        await wait_until(done)


@pytest.fixture
async def clockwork(engine_settings: Settings) -> AsyncIterator[Clockwork]:
    made = Clockwork(engine_settings)
    async with made.engine.running():
        yield made
        await made.quiet()
        await made.engine.settle()
        await check_rules(made.engine)


async def test_three_schedulers_fire_a_slot_once_and_an_outage_is_caught_up_once(clockwork: Clockwork) -> None:
    for round_ in range(1, 6):
        await clockwork.overdue()
        for _ in range(2):
            await asyncio.gather(*(fire_due(runtime) for runtime in clockwork.runtimes))
        fires = await clockwork.fires()
        assert [(fire.state, fire.owner) for fire in fires] == [("done", "default/ann")]
        assert fires[0].slot == fires[0].created_at // HOUR_MS * HOUR_MS, "the latest of those that were missed"
        threads = await clockwork.threads()
        assert len(threads) == round_
        assert threads[0].owner == "default/ann"
        [fire] = fires
        run = await api.get_run(clockwork.engine.runtime, clockwork.engine.caller(), fire.thread_id, fire.run_id)
        assert run.initiator == "trigger"
        # As if it were another day, because every slot fires once for ever.
        await clockwork.engine.execute("DELETE FROM trigger_fire")


async def test_a_slot_that_was_fired_never_fires_again(clockwork: Clockwork) -> None:
    clockwork.scheduled("seldom")
    await clockwork.overdue()
    await fire_due(clockwork.runtimes[0])
    await clockwork.engine.execute("UPDATE schedule SET next_at = :slot", slot=HOUR_MS)
    await fire_due(clockwork.runtimes[1])
    assert len(await clockwork.fires()) == 1


async def test_a_process_that_dies_between_claim_and_dispatch_leaves_its_slot_to_another(
    clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    await clockwork.overdue()

    def die(point: str) -> None:
        if point == "trigger.before_send":
            raise Died

    monkeypatch.setattr(clockwork.runtimes[0].faults, "hit", die)
    with pytest.raises(Died):
        await fire_due(clockwork.runtimes[0])
    await fire_due(clockwork.runtimes[1])
    assert await clockwork.threads() == []
    await clockwork.engine.execute("UPDATE trigger_fire SET due_at = 1")
    await asyncio.gather(*(fire_due(runtime) for runtime in clockwork.runtimes[1:]))
    assert len(await clockwork.threads()) == 1
    [fire] = await clockwork.fires()
    assert (fire.state, fire.attempt) == ("done", 2)


async def test_a_fire_that_was_taken_over_starts_no_second_run(clockwork: Clockwork) -> None:
    """The first one wakes up after the second has sent: its transaction is undone."""
    await clockwork.overdue()
    gate, entered = asyncio.Event(), asyncio.Event()
    agent = clockwork.engine.agent()
    object.__setattr__(agent.triggers["hourly"], "function", _delayed(agent, entered, gate))
    first = asyncio.create_task(fire_due(clockwork.runtimes[0]))
    await entered.wait()
    await clockwork.engine.execute("UPDATE trigger_fire SET due_at = 1")
    await fire_due(clockwork.runtimes[1])
    gate.set()
    await first
    assert len(await clockwork.threads()) == 1
    assert [fire.state for fire in await clockwork.fires()] == ["done"]


async def test_a_trigger_that_hangs_takes_up_only_itself(clockwork: Clockwork) -> None:
    """However often it is due, one fire of it is under way in a process; then the latest slot is made up for."""
    gate, hung = asyncio.Event(), 0

    async def hangs(ctx: TriggerContext) -> None:
        nonlocal hung
        hung += 1
        await gate.wait()

    clockwork.scheduled("hangs", function=hangs)
    clockwork.scheduled("good")
    first, second = (worker.runtime for worker in clockwork.engine.workers)
    firing: Firing = {}
    await clockwork.overdue()
    for slot in range(1, 26):
        await clockwork.engine.execute("UPDATE schedule SET next_at = :slot", slot=slot)
        await sweep_triggers(first, firing, Metrics())
        await wait_until(lambda: len(firing) == 1)
        assert await clockwork.done("good") == list(range(1, slot + 1))
    others: Firing = {}
    await sweep_triggers(second, others, Metrics())
    await wait_until(lambda: hung == 2)
    assert sorted(fire.slot for fire in await clockwork.fires() if fire.trigger == "hangs") == [1, 25]
    await clockwork.engine.execute("UPDATE schedule SET next_at = 26 WHERE \"trigger\" = 'hangs'")
    for runtime, tasks in ((first, firing), (second, others)):
        await sweep_triggers(runtime, tasks, Metrics())
    assert hung == 2, "both are busy with it"
    gate.set()
    await wait_until(lambda: not firing and not others)
    for runtime in (first, second):
        await fire_due(runtime)
    assert await clockwork.done("hangs") == [1, 25, 26]


async def test_however_many_triggers_hang_another_one_fires_and_nothing_piles_up(clockwork: Clockwork) -> None:
    never = asyncio.Event()

    async def hangs(ctx: TriggerContext) -> None:
        await never.wait()

    names = [f"hangs-{number}" for number in range(MOST_PER_ROUND + 5)]
    clockwork.scheduled(*names, function=hangs)
    clockwork.scheduled("good")
    await clockwork.overdue()
    firing: Firing = {}
    worker = clockwork.engine.workers[0].runtime
    await sweep_triggers(worker, firing, Metrics())
    assert len(await clockwork.fires()) == MOST_PER_ROUND, "a slot is claimed by who begins its fire"
    await sweep_triggers(worker, firing, Metrics())
    await wait_until(lambda: len(firing) == len(names))
    assert await clockwork.done("good") == [HOUR_MS]
    for task in list(firing):
        task.cancel()
    await asyncio.gather(*firing, return_exceptions=True)


async def test_a_trigger_that_hangs_keeps_no_steps_waiting_and_is_given_up(clockwork: Clockwork) -> None:
    agent, never, asked = clockwork.engine.agent(), asyncio.Event(), asyncio.Event()
    object.__setattr__(agent.triggers["hourly"], "function", _delayed(agent, asked, never))
    worker = clockwork.engine.workers[0].runtime
    await clockwork.overdue()
    firing: Firing = {}
    await sweep_triggers(worker, firing, Metrics())
    await asked.wait()
    await clockwork.engine.sweep(0)
    await clockwork.engine.execute("DELETE FROM schedule")
    (hanging,) = firing
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    for _ in range(3):
        asked.clear()
        await clockwork.engine.execute("UPDATE trigger_fire SET due_at = 1 WHERE due_at IS NOT NULL")
        await sweep_triggers(worker, firing, Metrics())
        await wait_until(lambda: asked.is_set() or not firing)
        for task in list(firing):
            task.cancel()
        await asyncio.gather(*firing, return_exceptions=True)
    assert [(fire.state, fire.attempt, fire.due_at) for fire in await clockwork.fires()] == [("failed", 4, None)]


async def test_a_trigger_that_takes_too_long_is_cut_off(clockwork: Clockwork) -> None:
    agent, never, asked = clockwork.engine.agent(), asyncio.Event(), asyncio.Event()
    object.__setattr__(agent.triggers["hourly"], "function", _delayed(agent, asked, never))
    await clockwork.overdue()
    worker = clockwork.engine.workers[0].runtime
    worker.settings = worker.settings.model_copy(update={"tool_timeout": timedelta(milliseconds=30)})
    for _ in range(3):
        asked.clear()
        await fire_due(worker)
        await clockwork.engine.execute("UPDATE trigger_fire SET due_at = 1 WHERE due_at IS NOT NULL")
    assert [(fire.state, fire.attempt) for fire in await clockwork.fires()] == [("failed", 3)]


async def test_a_fire_that_takes_longer_than_its_lease_is_not_taken_over(clockwork: Clockwork) -> None:
    agent, gate, asked = clockwork.engine.agent(), asyncio.Event(), asyncio.Event()
    object.__setattr__(agent.triggers["hourly"], "function", _delayed(agent, asked, gate))
    await clockwork.overdue()
    worker = clockwork.engine.workers[0].runtime
    worker.lease_ms = 20
    first = asyncio.create_task(fire_due(worker))
    await asked.wait()
    [before] = await clockwork.fires()

    async def renewed_often() -> bool:
        [fire] = await clockwork.fires()
        return fire.due_at > before.due_at + 5 * worker.lease_ms

    await wait_until(renewed_often)
    gate.set()
    await first
    assert [(fire.state, fire.attempt) for fire in await clockwork.fires()] == [("done", 1)]


async def test_fires_are_dropped_when_they_are_old_and_closed(clockwork: Clockwork) -> None:
    await clockwork.fire(key="old", owner="default/ann")
    await clockwork.fire(key="new", owner="default/ann")
    await clockwork.overdue()
    await clockwork.engine.execute("UPDATE trigger_fire SET created_at = 1 WHERE request_key = 'old'")
    await clockwork.engine.execute(
        "INSERT INTO trigger_fire (fire_id, agent, trigger, owner, state, attempt, due_at, created_at) "
        "SELECT 'open', agent, trigger, owner, 'running', 1, due_at, 1 FROM (SELECT agent, trigger, owner, "
        "9000000000000 AS due_at FROM trigger_fire WHERE request_key = 'new') AS one"
    )
    await drop_old_fires(clockwork.runtimes[0])
    assert sorted((fire.fire_id == "open", fire.request_key) for fire in await clockwork.fires()) == [
        (False, "new"),
        (True, None),
    ]


def _delayed(agent: Agent, entered: asyncio.Event, gate: asyncio.Event) -> Any:
    real = agent.triggers["hourly"].function

    async def function(ctx: TriggerContext) -> Any:
        if not entered.is_set():
            entered.set()
            await gate.wait()
        return await real(ctx)

    return function


async def test_a_trigger_may_have_nothing_to_say_or_fail_and_that_is_recorded(clockwork: Clockwork) -> None:
    clockwork.given = None
    await clockwork.overdue()
    await fire_due(clockwork.runtimes[0])
    assert [fire.state for fire in await clockwork.fires()] == ["skipped"]
    await clockwork.engine.execute("DELETE FROM trigger_fire")
    clockwork.given = RuntimeError("secret")
    await clockwork.overdue()
    for attempt in range(1, 4):
        await fire_due(clockwork.runtimes[0])
        [fire] = await clockwork.fires()
        assert (fire.attempt, fire.state) == (attempt, "failed" if attempt == 3 else "running")
        await clockwork.engine.execute("UPDATE trigger_fire SET due_at = 1 WHERE due_at IS NOT NULL")
    assert fire.error == "The trigger failed."
    assert await clockwork.threads() == []


async def test_a_busy_thread_queues_what_a_trigger_sends(clockwork: Clockwork) -> None:
    gate = asyncio.Event()
    clockwork.engine.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    await clockwork.engine.send("a person")
    clockwork.given = TriggerInput(text="wake up", thread_id="t")
    await clockwork.overdue()
    await fire_due(clockwork.runtimes[0])
    await clockwork.fire("call", threadId="t", owner="default/ann")
    state = await clockwork.engine.state()
    assert [item["messages"][0]["metadata"]["pai"]["producer"] for item in state["queue"]["items"]] == ["trigger"] * 2
    gate.set()
    state = await clockwork.engine.idle()
    assert [text_of(message) for message in state["messages"] if message["role"] == "user"] == [
        "a person",
        "wake up",
        "wake up",
    ]


async def test_a_call_acts_for_the_named_owner_or_the_declared_one_or_the_caller(clockwork: Clockwork) -> None:
    for name, owner in (("call", "default/eve"), ("owned", "default/eve"), ("owned", None), ("call", None)):
        await clockwork.fire(name, owner=owner)
    expected = ["default/eve", "default/eve", "default/bob", "default/ops"]
    assert [context.identity.owner for context in clockwork.seen] == expected
    assert [fire.owner for fire in await clockwork.fires()] == expected
    assert sorted(thread.owner for thread in await clockwork.threads()) == sorted(expected)


async def test_the_same_key_fires_once_also_at_the_same_moment(clockwork: Clockwork) -> None:
    replies = await asyncio.gather(*(clockwork.fire(key="k", input="tea") for _ in range(5)))
    assert len({reply.result.run.run_id for reply in replies}) == 1
    assert sum(not reply.replayed for reply in replies) == 1
    assert len(await clockwork.threads()) == 1
    assert len(await clockwork.fires()) == 1
    with pytest.raises(IdempotencyConflict):
        await clockwork.fire(key="k", input="milk")
    await clockwork.fire(key="k", input="tea", owner="default/eve")
    assert len(await clockwork.threads()) == 2


async def test_of_calls_with_one_key_none_is_refused_because_another_took_the_last_place(clockwork: Clockwork) -> None:
    gate = asyncio.Event()
    clockwork.engine.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    await clockwork.engine.send("a person")
    for _ in range(clockwork.engine.settings.max_queued_messages - 1):
        await clockwork.fire(threadId="t", owner="default/ann")
    replies = await asyncio.gather(*(clockwork.fire(key="k", threadId="t", owner="default/ann") for _ in range(5)))
    assert len({reply.result.run.run_id for reply in replies}) == 1
    assert sum(not reply.replayed for reply in replies) == 1
    assert {fire.state for fire in await clockwork.fires()} == {"done"}
    gate.set()


async def test_a_call_that_fails_is_recorded_and_may_be_made_again(clockwork: Clockwork) -> None:
    clockwork.given = RuntimeError("secret")
    with pytest.raises(RuntimeError):
        await clockwork.fire(key="k")
    clockwork.given = TriggerInput(text="x", title="y" * 1000)
    with pytest.raises(ValidationFailed):
        await clockwork.fire(key="k")
    clockwork.given = None
    assert (await clockwork.fire(key="k")).result is None
    assert (await clockwork.fire(key="k")).replayed
    fires = await clockwork.fires()
    assert [fire.state for fire in fires] == ["failed", "failed", "skipped"]
    assert fires[0].error == "The trigger failed."
    assert await clockwork.threads() == []
    with pytest.raises(NotFound):
        await clockwork.fire("hourly")
    with pytest.raises(NotFound):
        await clockwork.fire("none")
    ordinary = Caller(Identity(subject="ann"), clockwork.engine.agent())
    with pytest.raises(Forbidden):
        await api.fire_trigger(clockwork.engine.runtime, ordinary, "call", TriggerRequest())


@pytest.mark.parametrize("first", ["trigger", "person"])
async def test_messages_that_are_merged_keep_whom_they_come_from(clockwork: Clockwork, first: str) -> None:
    gate = asyncio.Event()
    clockwork.engine.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    await clockwork.engine.send("a person")
    queue = {"mode": "queue", "merge": "last"}
    for who in ("trigger", "person") if first == "trigger" else ("person", "trigger"):
        if who == "trigger":
            await clockwork.fire(threadId="t", owner="default/ann", queue=queue)
        else:
            await clockwork.engine.send("more", queue=queue)
    producers = ["trigger", "send"] if first == "trigger" else ["send", "trigger"]
    (item,) = (await clockwork.engine.state())["queue"]["items"]
    assert [message["metadata"]["pai"]["producer"] for message in item["messages"]] == producers
    gate.set()
    state = await clockwork.engine.idle()
    inputs = [message for message in state["messages"] if message["role"] == "user"]
    assert [message["metadata"]["pai"]["producer"] for message in inputs] == ["send", *producers]


async def test_what_a_trigger_sends_is_cleaned(clockwork: Clockwork) -> None:
    dirty, clean = "a\0b\ud800", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    clockwork.given = TriggerInput(
        text=dirty, title=dirty, category=dirty, metadata={"x": dirty}, thread_metadata={"x": dirty}
    )
    reply = await clockwork.fire(owner="default/ann")
    thread = await clockwork.engine.thread(reply.result.run.thread_id)
    assert thread.title is not None
    assert (thread.title["value"], thread.category, thread.meta) == (clean, clean, {"x": clean})
    state = await clockwork.engine.idle(thread.thread_id)
    assert text_of(state["messages"][0]) == clean
    assert state["messages"][0]["metadata"]["x"] == clean


async def test_a_full_queue_refuses_a_call(clockwork: Clockwork) -> None:
    gate = asyncio.Event()
    clockwork.engine.turns.append(Turn(chunks=text(["so ", "far"]), gate=gate, gate_at=2))
    await clockwork.engine.send("a person")
    for _ in range(clockwork.engine.settings.max_queued_messages):
        await clockwork.fire(threadId="t", owner="default/ann")
    with pytest.raises(QueueFull):
        await clockwork.fire(threadId="t", owner="default/ann")
    gate.set()
