"""Any sequence of operations on a thread, each followed by the rules; at its end every provider accepts the history."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from alarms import Death, check_fires
from engine_rules import check_rows
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from test_engine_random import TOOLS, refused_or_done
from world import World

from pai.engine import api
from pai.protocol.errors import PaiError, ValidationFailed
from pai.protocol.requests import RegenerateRequest, ToolDataRequest
from pai.settings import Settings

TURNS = st.lists(
    st.one_of(
        st.just("words"),
        st.lists(st.sampled_from([*TOOLS, ("hold", {"name": "h"})]), min_size=1, max_size=4),
        st.booleans(),  # a failure, and whether it may pass
    ),
    max_size=3,
)
MODES = st.sampled_from([None, ("queue", "none"), ("queue", "last"), ("steer", "none"), ("steer", "last")])
RESPONSES = st.sampled_from(["submit", "submit", "submit", "cancel", "fail"])
INDEX = st.integers(0, 7)
DEATHS = st.builds(Death, st.booleans(), st.integers(0, 60))


def machine_of(world: World) -> type[RuleBasedStateMachine]:
    class Machine(RuleBasedStateMachine):
        """Each rule is an operation that may be refused with a reason; anything else is a bug."""

        def operate(self, *operations: Callable[[], Awaitable[Any]], ticks: int = 0) -> None:
            async def work() -> None:
                await asyncio.gather(*(refused_or_done(operation()) for operation in operations))
                await world.tick(ticks)

            world.do(work())

        @initialize(turns=TURNS)
        def begin(self, turns: list[Any]) -> None:
            world.turns.extend(turns)
            self.operate(lambda: world.engine.send("hello", thread=world.thread), ticks=50)

        @rule(mode=MODES, turns=TURNS, process=st.integers(0, 1), ticks=st.integers(0, 60))
        def send(self, mode: tuple[str, str] | None, turns: list[Any], process: int, ticks: int) -> None:
            world.turns.extend(turns)
            queue = {} if mode is None else {"queue": {"mode": mode[0], "merge": mode[1]}}
            runtime = world.engine.runtimes[process]
            self.operate(
                lambda: world.engine.send(f"m{next(world.numbers)}", thread=world.thread, runtime=runtime, **queue),
                ticks=ticks,
            )

        @rule(index=INDEX, how=RESPONSES, ticks=st.integers(0, 60))
        def respond(self, index: int, how: str, ticks: int) -> None:
            if actions := world.do(world.actions()):
                ref = actions[index % len(actions)]
                self.operate(lambda: world.engine.respond(ref, _response(ref, how)), ticks=ticks)

        @rule(index=INDEX, how=RESPONSES)
        def respond_twice(self, index: int, how: str) -> None:
            """At the same time through two processes: at most one is taken."""
            if not (actions := world.do(world.actions())):
                return
            ref = actions[index % len(actions)]

            async def both() -> list[Any]:
                return await asyncio.gather(
                    *(world.engine.respond(ref, _response(ref, how), runtime=one) for one in world.engine.runtimes),
                    return_exceptions=True,
                )

            answers = world.do(both())
            assert all(isinstance(answer, PaiError) for answer in answers if isinstance(answer, BaseException))
            assert sum(not isinstance(answer, BaseException) for answer in answers) <= 1

        @rule(index=INDEX)
        def respond_wrongly(self, index: int) -> None:
            actions = [ref for ref in world.do(world.actions()) if ref["toolName"] != "ask"]
            if actions:
                ref = actions[index % len(actions)]
                with suppress(PaiError):
                    world.do(world.engine.submit(ref, {"approved": "true"}))
                    raise AssertionError("a payload that does not fit was taken")

        @rule(index=INDEX)
        def respond_late(self, index: int) -> None:
            now = world.do(world.actions())
            late = [ref for ref in world.asked if ref not in now]
            if late:
                ref = late[index % len(late)]
                with suppress(PaiError):
                    world.do(world.engine.submit(ref, {"approved": True}))
                    raise AssertionError("an answer to nothing was taken")

        @rule(index=INDEX)
        def respond_and_stop(self, index: int) -> None:
            if actions := world.do(world.actions()):
                ref = actions[index % len(actions)]
                both = [
                    lambda: world.engine.respond(ref, _response(ref, "submit")),
                    self._stop("none", ref["threadId"]),
                ]
                self.operate(*(both if index % 2 else reversed(both)))

        @rule(index=INDEX, value=st.sampled_from(["a", 5, None]))
        def write_tool_data(self, index: int, value: Any) -> None:
            if actions := world.do(world.actions()):
                ref = actions[index % len(actions)]
                names = {"messageId": ref["messageId"], "toolCallId": ref["toolCallId"], "name": "note"}
                request = ToolDataRequest.read({**names, "value": value})
                engine = world.engine
                with suppress(ValidationFailed):
                    self.operate(lambda: api.write_tool_data(engine.runtime, engine.caller(), ref["threadId"], request))

        @rule(goes_on=st.sampled_from(["none", "steer", "all"]))
        def stop(self, goes_on: str) -> None:
            self.operate(self._stop(goes_on))

        def _stop(self, goes_on: str, thread: str = world.thread) -> Callable[[], Awaitable[Any]]:
            return lambda: world.engine.stop(thread, continueWith=goes_on)

        @rule(index=INDEX)
        def stop_run(self, index: int) -> None:
            if state := world.do(world.state()):
                run_id = state["runs"][index % len(state["runs"])]["runId"]
                self.operate(lambda: world.engine.stop_run(run_id, world.thread))

        @rule(index=INDEX)
        def recall(self, index: int) -> None:
            state = world.do(world.state())
            if state is not None and (items := state["queue"]["items"]):
                item, engine = items[index % len(items)]["queueItemId"], world.engine
                self.operate(lambda: api.recall(engine.runtime, engine.caller(), world.thread, item))

        @rule(index=INDEX)
        def regenerate(self, index: int) -> None:
            state = world.do(world.state())
            users = [one["id"] for one in state["messages"] if one["role"] == "user"] if state else []
            if users:
                request, engine = RegenerateRequest.read({"messageId": users[index % len(users)]}), world.engine
                self.operate(lambda: api.regenerate(engine.runtime, engine.caller(), world.thread, request))

        @rule()
        def delete(self) -> None:
            """The next send makes the thread anew."""
            world.do(world.delete(world.thread))

        @rule(there=st.booleans(), mode=st.sampled_from(["queue", "steer"]), silent=st.booleans())
        def set_the_alarms(self, there: bool, mode: str, silent: bool) -> None:
            """Whether they go off in the thread or in new ones, if they do."""
            world.alarms.thread, world.alarms.queue = world.thread if there else None, mode
            world.alarms.silent = silent and not there

        @rule(processes=st.integers(1, 4), again=st.booleans(), death=st.one_of(st.none(), DEATHS))
        def a_slot_is_due(self, processes: int, again: bool, death: Death | None) -> None:
            runtimes = [*(worker.runtime for worker in world.engine.workers), *world.engine.runtimes]
            world.do(world.alarms.ring(world.engine, runtimes[:processes], again=again, death=death))

        @rule(mode=MODES, keyed=st.booleans(), processes=st.integers(1, 2), there=st.booleans())
        def fire(self, mode: tuple[str, str] | None, keyed: bool, processes: int, there: bool) -> None:
            more: dict[str, Any] = {} if mode is None else {"queue": {"mode": mode[0], "merge": mode[1]}}
            if there:
                more["threadId"] = world.thread
            key = f"k{next(world.numbers)}" if keyed else None
            runtimes = world.engine.runtimes[: processes if keyed else 1]
            world.do(world.alarms.call(world.engine, key, runtimes, **more))

        @rule(death=DEATHS)
        def fire_and_die(self, death: Death) -> None:
            world.do(world.alarms.call_and_die(world.engine, f"k{next(world.numbers)}", death=death))

        @rule(index=INDEX)
        def fire_again(self, index: int) -> None:
            world.do(world.alarms.call_again(world.engine, index))

        @rule(worker=st.integers(0, 1))
        def kill(self, worker: int) -> None:
            """What a worker did is cut off, and its leases run out."""

            async def work() -> None:
                victim = world.engine.workers[worker]
                for _, task in list(victim.runner._tasks.values()):
                    task.cancel()
                await world.tick(20)
                await world.engine.lapse()

            world.do(work())

        @rule()
        def lapse(self) -> None:
            """Leases run out while their workers live on."""
            world.do(world.engine.lapse())

        @rule()
        def restart(self) -> None:
            async def work() -> None:
                await world.processes.aclose()
                await world.start()

            world.do(work())

        @rule()
        def lose_the_log(self) -> None:
            world.do(world.engine.flush_log())

        @rule()
        def make_due(self) -> None:
            world.do(world.engine.make_due())

        @rule(ticks=st.integers(1, 400))
        def wait(self, ticks: int) -> None:
            world.do(world.tick(ticks))

        @rule()
        def let_the_tool_go(self) -> None:
            world.gate_open = True
            world.engine.stage.gate("h").set()

        @invariant()
        def rules_hold(self) -> None:
            async def check() -> None:
                await check_fires(world.engine, await check_rows(world.engine))

            world.do(check())

        def teardown(self) -> None:
            world.do(world.end())

    return Machine


def _response(ref: dict[str, Any], how: str) -> dict[str, Any]:
    match how:
        case "submit":
            return {"type": "submit", "payload": 5 if ref["toolName"] == "ticket" else {"approved": True}}
        case "cancel":
            return {"type": "cancel", "reason": "no time"}
    return {"type": "fail", "error": {"message": "no", "code": "NO", "detail": {"a": [1]}}}


# A process that is cut off while it connects leaves its socket to the system; here it is left to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_sequence_of_operations_breaks_a_rule(engine_settings: Settings) -> None:
    """`PAI_TEST_EXAMPLES` says how many sequences are tried."""
    with asyncio.Runner() as runner:
        world = World(engine_settings, runner)
        world.do(world.open())
        try:
            run_state_machine_as_test(
                machine_of(world),
                settings=settings(
                    max_examples=int(os.environ.get("PAI_TEST_EXAMPLES", "6")),
                    stateful_step_count=25,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            world.do(world.stack.aclose())
