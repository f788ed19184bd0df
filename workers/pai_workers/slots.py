"""A worker's slots: each holds a step until it ends or waits. A slot is a place, not a thread: all run in one loop."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from celery.concurrency.base import BasePool, apply_target  # type: ignore[import-untyped]
from celery.worker.request import Request  # type: ignore[import-untyped]
from kombu.asynchronous import get_event_loop


class Slots(BasePool):  # type: ignore[misc]
    """Celery's pool, all of it in Celery's own thread. A task begins its step and hands over what ends with it: `hold`.

    A message that comes while every slot is taken waits unaccepted: the broker gives it to another worker when this one
    dies.
    """

    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, limit: int, **options: Any) -> None:
        super().__init__(limit, **options)
        self._limit = limit
        self._waiting: deque[Callable[[], None]] = deque()
        self._held: Future[Any] | None = None
        self._taken = 0

    def hold(self, step: "Future[Any]") -> None:
        """For the task that begins right now: its slot is taken until the step is done."""
        self._held = step

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        callback: Callable[[Any], Any],
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        begun = partial(self._begun, callback)
        self._waiting.append(partial(apply_target, target, args, kwargs, begun, accept_callback))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._taken < self._limit:
            self._held = None
            self._waiting.popleft()()

    def _begun(self, callback: Callable[[Any], Any], result: Any) -> None:
        """The task has returned; Celery is told what it returned when its step has ended."""
        if self._held is None:
            callback(result)
            return
        self._taken += 1
        self._held.add_done_callback(lambda _: _in_celerys_thread(self._freed, callback, result))

    def _freed(self, callback: Callable[[Any], Any], result: Any) -> None:
        self._taken -= 1
        callback(result)
        self._begin()


class Received(Request):  # type: ignore[misc]
    """A message that went when it was received (`no_ack`); Celery would acknowledge it all the same."""

    def acknowledge(self) -> None:
        self.acknowledged = True


def _in_celerys_thread(work: Callable[..., None], *arguments: Any) -> None:
    """Also wakes Celery's loop, which asks for no message and sleeps while every slot is taken."""
    hub = get_event_loop()
    if hub is not None:  # else it has ended
        hub.call_soon(work, *arguments)  # type: ignore[no-untyped-call]
