"""A worker's slots: Celery's threads, each of which holds a step until it ends or waits."""

from typing import Any

from celery.concurrency.thread import ApplyResult, TaskPool  # type: ignore[import-untyped]
from celery.worker.request import Request  # type: ignore[import-untyped]
from kombu.asynchronous import get_event_loop


class Slots(TaskPool):  # type: ignore[misc]
    """Celery's loop asks for no message while every slot is taken, and sleeps: whoever frees one wakes it."""

    def on_apply(self, *args: Any, **kwargs: Any) -> ApplyResult:
        result = super().on_apply(*args, **kwargs)
        result.f.add_done_callback(_wake)
        return result


class Received(Request):  # type: ignore[misc]
    """A message that went when it was received (`no_ack`); Celery would acknowledge it all the same."""

    def acknowledge(self) -> None:
        self.acknowledged = True


def _wake(_: Any) -> None:
    hub = get_event_loop()
    if hub is not None:
        hub.call_soon(_nothing)  # type: ignore[no-untyped-call]


def _nothing() -> None:
    """What the loop is woken for is what it does before it sleeps again."""
