"""Open watches end when the server is told to stop.

A server waits for its open responses before it shuts the application down, and a watch never ends by itself: without
a word in time, one watcher would hold a deployment for ever. The word is the signal, which is passed on to the handler
that the server installed.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Drain:
    """Becomes `started` once; whoever is registered is called then."""

    def __init__(self) -> None:
        self.started = False
        self._listeners: set[Callable[[], None]] = set()

    def start(self) -> None:
        """End all open watches, and those that come later at once. Call it from the event loop."""
        self.started = True
        for listener in tuple(self._listeners):
            listener()

    @contextmanager
    def on_start(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls the listener at the start, or at once when it has come already."""
        self._listeners.add(listener)
        try:
            if self.started:
                listener()
            yield
        finally:
            self._listeners.discard(listener)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Starts at SIGTERM and SIGINT, before the handlers that are there. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        previous: dict[int, Any] = {}

        def handle(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.start)
            handler = previous[number]
            if callable(handler):
                handler(number, frame)

        for one in _SIGNALS:
            # A default or ignored signal is nobody's graceful shutdown: leave it alone.
            if callable(signal.getsignal(one)) and signal.getsignal(one) is not signal.default_int_handler:
                previous[one] = signal.signal(one, handle)
        try:
            yield
        finally:
            for number, handler in previous.items():
                if signal.getsignal(number) is handle:
                    signal.signal(number, handler)
