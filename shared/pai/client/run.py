"""A handle on one run: to read it, to follow it, to wait for it, to stop it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pai.client.inputs import request
from pai.client.records import RunState
from pai.client.request_context import UNSET, ClientTools, Unset
from pai.client.thread_state import ActionResult, ThreadState
from pai.protocol.errors import RunGone, RunNotActive, ThreadDeleted
from pai.protocol.requests import RegenerateRequest
from pai.protocol.state import RunStatus

if TYPE_CHECKING:
    from pai.client.thread import Thread

StopOn = Literal["idle", "blocked"]


class RunHandle:
    """Made without I/O; the run need not exist. Waits go on across lost connections, and until an unknown run appears.

    They raise RunGone when the run was removed, ThreadDeleted when its thread was.
    """

    def __init__(self, thread: "Thread", run_id: str, *, version: str | None = None, revision: int = 0) -> None:
        """`version` and `revision`: the transaction that this client knows to have had the run."""
        self.run_id = run_id
        self._thread = thread
        self._version = version
        self._revision = revision
        self._thread_version = version

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"

    async def get_state(self) -> RunState | None:
        """The run as the server has it now; None for an unknown one."""
        return await self._thread._get_run(self.run_id)

    async def watch(
        self, *, stop_on: StopOn | None = None, interval: timedelta | None = None
    ) -> AsyncGenerator[ThreadState, None]:
        """The states of the thread, until the run is `idle` (terminal) or `blocked` (that, or waiting)."""
        self._expect()
        shown: ThreadState | None = None
        async with aclosing(self._thread._turns(interval=interval)) as turns:
            async for _ in turns:
                run = self._check()
                state = self._thread.get_state()
                if state is not shown:
                    shown = state
                    yield state
                if run is not None and stop_on is not None and _stops(run, stop_on):
                    return

    async def wait_until_status(self, status: RunStatus | str) -> RunState:
        """The run, once it has that status. It may have passed `queued` or `running` in the meantime: then it returns.

        Raises RunNotActive when it ended otherwise.
        """
        wanted = RunStatus(status)
        return await self._wait(lambda run: _reached(run, wanted))

    async def wait_until(self, status: RunStatus | str) -> ThreadState:
        """As `wait_until_status`, for the state of the thread."""
        await self.wait_until_status(status)
        return self._thread.get_state()

    async def wait_until_blocked(self) -> ThreadState:
        """Until the run waits for somebody, or ended."""
        await self._wait(lambda run: _stops(run, "blocked"))
        return self._thread.get_state()

    async def wait_until_idle(self) -> ThreadState:
        """Until the run ended, through all its waiting."""
        await self._wait(lambda run: _stops(run, "idle"))
        return self._thread.get_state()

    async def stop(self, *, reason: str | None = None) -> ActionResult:
        """Stop exactly this running or waiting run; what is queued goes on. Raises RunNotActive."""
        return await self._thread._stop_run(self.run_id, reason=reason)

    async def regenerate(self, *, client_data: Any = UNSET, client_tools: ClientTools | Unset = UNSET) -> "RunHandle":
        """Run its whole ordered input again; what came of it goes. Raises RegenerateInvalid."""
        body = request(RegenerateRequest, run_id=self.run_id)
        return await self._thread._regenerate(body, client_data, client_tools)

    async def _wait(self, done: Callable[[RunState], bool]) -> RunState:
        self._expect()
        async with aclosing(self._thread._turns()) as turns:
            async for _ in turns:
                run = self._check()
                if run is not None and done(run):
                    return run
        raise ThreadDeleted()

    def _expect(self) -> None:
        """Nobody knows yet which incarnation will have the run; the one that is there now may be deleted meanwhile."""
        if self._version is None:
            self._thread_version = self._thread._reducer.version

    def _check(self) -> RunState | None:
        """Raises RunGone, ThreadDeleted."""
        reducer = self._thread._reducer
        if self._thread_version in reducer.deleted_versions:
            raise ThreadDeleted()
        self._expect()
        run = reducer.run(self.run_id)
        if run is not None:
            self._version = self._thread_version = reducer.version
            self._revision = reducer.revision
        elif self._version is not None and reducer.version is not None:
            if reducer.version != self._version:
                raise ThreadDeleted()
            if reducer.revision >= self._revision:
                raise RunGone()
        return run


def _stops(run: RunState, stop_on: StopOn) -> bool:
    return run.status.terminal or (stop_on == "blocked" and run.status is RunStatus.waiting)


def _reached(run: RunState, wanted: RunStatus) -> bool:
    if run.status is wanted or wanted is RunStatus.queued:
        return True
    if not run.status.terminal:
        return False
    if wanted is RunStatus.running and run.started_at is not None:
        return True
    raise RunNotActive(run.status)
