"""One process that must be up: started, watched, started again when it ends, and stopped when told."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pai.cli.lifeline import lifeline_environment
from pai.protocol.errors import PaiError

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 10.0
# A process that lived this long has recovered: its next end counts as the first again.
_RECOVERED = 60.0


class ChildFailed(PaiError):
    """The process ended before it ever was ready: there is something to mend first."""

    code = "child_failed"
    title = "A process could not be started"


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """`grace` is how long SIGTERM may take before SIGKILL."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited_fds: tuple[int, ...] = ()
    grace: timedelta = timedelta(seconds=10)


class Child:
    """Runs a `ChildSpec` until it is stopped. `report` gets one line for people whenever something happens."""

    def __init__(self, spec: ChildSpec, *, report: Callable[[str], None]) -> None:
        self.spec = spec
        self._report = report
        self._process: Process | None = None
        self._stopping = False
        self._was_ready = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {spec.name}")

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def ready(self) -> None:
        """Wait until the process said that it is ready. Raises ChildFailed when it ended instead."""
        waiting = asyncio.create_task(self._was_ready.wait())
        try:
            await asyncio.wait({waiting, self._keeper}, return_when=asyncio.FIRST_COMPLETED)
            if self._keeper.done() and not self._was_ready.is_set():
                self._keeper.result()
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when it takes longer than its grace."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        _, late = await asyncio.wait({self._keeper}, timeout=self.spec.grace.total_seconds())
        if late:
            self._report(f"{self.spec.name} did not stop within {self.spec.grace.total_seconds():g} s and is killed")
            self.kill()
            await asyncio.wait({self._keeper})
        if not self._keeper.cancelled():
            self._keeper.exception()  # whoever waits for `ready` was told

    def kill(self) -> None:
        self._stopping = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.pid is None:
            self._keeper.cancel()  # it is between two starts
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    async def _keep(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            code = await self._run_once()
            if self._stopping:
                return
            ended = f"{self.spec.name} ended ({_told(code)})"
            if not self._was_ready.is_set():
                raise ChildFailed(f"{ended} before it was ready; what it printed says why")
            failures = 0 if time.monotonic() - started > _RECOVERED else failures + 1
            delay = min(_FIRST_DELAY * 2 ** max(failures - 1, 0), _LONGEST_DELAY)
            self._report(f"{ended}; starting it again in {delay:g} s")
            await asyncio.sleep(delay)

    async def _run_once(self) -> int:
        read_end, write_end = os.pipe()
        loop = asyncio.get_running_loop()
        try:
            try:
                # A session of its own: Ctrl-C in the terminal is for the supervisor, which stops things in order.
                self._process = await asyncio.create_subprocess_exec(
                    *self.spec.argv,
                    env={**os.environ, **self.spec.environment, **lifeline_environment(write_end)},
                    pass_fds=(*self.spec.inherited_fds, write_end),
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
            if self._stopping:  # told while it was being started
                self._process.terminate()
            loop.add_reader(read_end, self._hear, read_end)
            return await self._process.wait()
        finally:
            loop.remove_reader(read_end)
            os.close(read_end)

    def _hear(self, read_end: int) -> None:
        if os.read(read_end, 64):
            self._was_ready.set()
        asyncio.get_running_loop().remove_reader(read_end)


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
