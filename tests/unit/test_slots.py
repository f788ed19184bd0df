"""A worker's slots: who gets one, until when, and what waits meanwhile."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from kombu.asynchronous import Hub, set_event_loop

from pai_workers.slots import Slots


class Pool:
    """Slots with a loop of Celery's that `turn` runs, and what came of the messages that were put in."""

    def __init__(self, limit: int) -> None:
        self.slots = Slots(limit)
        self.steps: dict[str, Future[None]] = {}
        self.accepted: list[str] = []
        self.ended: list[str] = []

    def put(self, name: str, *, step: bool = True) -> None:
        def task() -> str:
            if step:
                self.slots.hold(self.steps.setdefault(name, Future()))
            return name

        self.slots.on_apply(
            task, callback=self.ended.append, accept_callback=lambda pid, time: self.accepted.append(name)
        )


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    set_event_loop(made)
    yield made
    made.close()
    set_event_loop(None)


def turn(hub: Hub) -> None:
    for work in hub._pop_ready():
        work()


def test_a_slot_is_taken_until_the_step_is_done(hub: Hub) -> None:
    pool = Pool(limit=1)
    pool.put("a")
    assert (pool.accepted, pool.ended) == (["a"], [])
    pool.steps["a"].set_result(None)
    assert pool.ended == []  # not in the thread in which the step ends
    turn(hub)
    assert pool.ended == ["a"]


def test_what_comes_while_every_slot_is_taken_waits_unaccepted_and_in_order(hub: Hub) -> None:
    pool = Pool(limit=2)
    for name in "abcd":
        pool.put(name)
    assert pool.accepted == ["a", "b"]
    pool.steps["b"].set_result(None)
    turn(hub)
    assert (pool.accepted, pool.ended) == (["a", "b", "c"], ["b"])
    pool.steps["a"].set_exception(RuntimeError("went wrong"))
    pool.steps["c"].cancel()
    turn(hub)
    assert (pool.accepted, sorted(pool.ended)) == (["a", "b", "c", "d"], ["a", "b", "c"])


def test_a_task_that_begins_no_step_leaves_its_slot_at_once(hub: Hub) -> None:
    pool = Pool(limit=1)
    pool.put("first")
    names = [str(number) for number in range(2_000)]
    for name in names:
        pool.put(name, step=False)
    pool.steps["first"].set_result(None)
    turn(hub)
    assert (pool.accepted, pool.ended) == (["first", *names], ["first", *names])


def test_a_message_that_cannot_be_begun_leaves_its_slot(hub: Hub) -> None:
    pool = Pool(limit=1)

    def broken() -> None:
        raise ValueError("no step")

    with pytest.raises(ValueError, match="no step"):
        pool.slots.on_apply(broken, callback=pool.ended.append)
    pool.put("a")
    assert pool.accepted == ["a"]


def test_steps_that_end_together_free_their_slots_once_each(hub: Hub) -> None:
    pool = Pool(limit=3)
    for number in range(9):
        pool.put(str(number))
    while len(pool.ended) < 9:
        for name in set(pool.accepted) - set(pool.ended):
            pool.steps[name].set_result(None)
        turn(hub)
        assert len(pool.accepted) - len(pool.ended) <= 3
    assert sorted(pool.accepted) == sorted(pool.ended)
