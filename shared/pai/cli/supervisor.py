"""Runs several processes as one: all are started, all are kept up, and they are stopped in reverse order."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from pai.cli.child import Child, ChildSpec

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Some callers deliver one signal twice, to the process and to its group; a person needs longer for the second Ctrl-C.
_SECOND_AFTER = 0.5


class Supervisor:
    """The children of one command, in the order they were started in."""

    def __init__(self, *, report: Callable[[str], None]) -> None:
        self._report = report
        self._stopped_at: float | None = None
        self.stopped = asyncio.Event()
        self.children: list[Child] = []

    def start(self, specs: Sequence[ChildSpec]) -> None:
        self.children = [Child(spec, report=self._report) for spec in specs]

    async def ready(self) -> bool:
        """Wait for all children; False when told to stop meanwhile. Raises ChildFailed."""
        stopped: asyncio.Task[object] = asyncio.create_task(self.stopped.wait())
        waits: list[asyncio.Task[object]] = [asyncio.create_task(child.ready()) for child in self.children]
        try:
            pending = {stopped, *waits}
            while not self.stopped.is_set() and not all(wait.done() for wait in waits):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {stopped}:
                    task.result()
            return not self.stopped.is_set()
        finally:
            for task in (stopped, *waits):
                task.cancel()
            await asyncio.gather(stopped, *waits, return_exceptions=True)

    def interrupt(self) -> None:
        """The first call asks for an orderly stop; a later one ends whatever is left."""
        now = time.monotonic()
        if self._stopped_at is None:
            self._stopped_at = now
            self._report("Stopping. Once more to stop at once.")
            self.stopped.set()
        elif now - self._stopped_at > _SECOND_AFTER:
            for child in self.children:
                child.kill()

    async def stop(self) -> None:
        """The last child first, each with its grace."""
        for child in reversed(self.children):
            await child.stop()


@asynccontextmanager
async def supervise(
    specs: Sequence[ChildSpec],
    *,
    report: Callable[[str], None],
    around: AbstractContextManager[object] | None = None,
) -> AsyncIterator[Supervisor]:
    """Start the processes. SIGINT, SIGTERM and SIGHUP set `stopped`; on exit all of them are stopped.

    `around` is entered before the first one starts and exited after the last one has ended; no signal cuts that off.
    """
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(report=report)
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, supervisor.interrupt)
    try:
        with around or nullcontext():
            try:
                supervisor.start(specs)
                yield supervisor
            finally:
                await supervisor.stop()
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
