"""The runner: claims steps, executes them, and goes on in place with what each commit creates.

One per worker process, in its one event loop. A run of ten steps costs one broker message, not ten; parallel tool steps
run together, and whichever of them ends last goes on with the model.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from pai.engine.claim import Claim, claim, postpone
from pai.engine.expiry import release
from pai.engine.log_names import named
from pai.engine.patience import patiently
from pai.engine.runtime import Runtime
from pai.engine.transaction import StepLost
from pai.log.errors import Fenced
from pai.log.publisher import Publisher
from pai.protocol.errors import Unavailable
from pai.protocol.ids import new_id
from pai.store.tables import Step, StepKind
from pai_workers.catalog import Models
from pai_workers.hook_step import run_hook
from pai_workers.metrics import Metrics, Outcome
from pai_workers.model_step import run_model
from pai_workers.pace import Pace
from pai_workers.tool_step import run_tool

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Runner:
    """`worker_id` names the process as the owner of leases."""

    def __init__(self, runtime: Runtime, publisher: Publisher, *, models: Models, threads: ThreadPoolExecutor) -> None:
        self.runtime = runtime
        self.publisher = publisher
        self.models = models
        self.threads = threads
        self.worker_id = new_id("worker")
        self.draining = False
        self.executed = 0
        self.metrics = Metrics()
        self._tasks: dict[str, tuple[Step, asyncio.Task[list[Claim]]]] = {}
        self._ending: set[str] = set()
        self._pace = Pace()
        self._outcomes: dict[asyncio.Task[Any], Outcome] = {}
        self._entered: set[asyncio.Task[Any]] = set()

    @property
    def goes_on_as(self) -> str | None:
        """Who holds the steps that a commit creates: this worker, unless it is about to end."""
        return None if self.draining else self.worker_id

    def held(self) -> Mapping[str, int]:
        """The steps under way and their attempts."""
        return {step_id: step.attempt for step_id, (step, _) in list(self._tasks.items())}

    def working_on(self) -> str:
        """What runs now, for people."""
        steps = [step for step, _ in list(self._tasks.values())]
        return ", ".join(f"{step.kind} {step.name or step.run_id}" for step in steps[:10]) or "nothing"

    async def run(self, step_id: str) -> None:
        """Executes a step and all that follows from it, if it can be claimed."""
        if self.draining:
            return
        entered = asyncio.current_task()
        if entered is not None:
            self._entered.add(entered)
            entered.add_done_callback(self._entered.discard)
        try:
            claimed = await claim(self.runtime, step_id, worker=self.worker_id)
        except Unavailable as error:
            logger.warning("Step %s could not be claimed, the sweep will bring it again: %s", step_id, error)
            return
        if claimed is None:
            return
        self.runtime.faults.hit("claim.before_start")
        await self._follow([claimed])

    async def _follow(self, claims: list[Claim]) -> None:
        while len(claims) == 1 and not self.draining:
            claims = await self._execute(claims[0])
        if self.draining:
            await self._not_begun(claims)
        elif claims:
            await asyncio.gather(*(self._follow([claimed]) for claimed in claims))

    async def _not_begun(self, claims: list[Claim]) -> None:
        """Gives back what was created for this worker just before it was told to stop."""
        for claimed in claims:
            with contextlib.suppress(Unavailable):
                await postpone(self.runtime, claimed.step, delay_ms=0)

    async def _execute(self, claimed: Claim) -> list[Claim]:
        """Runs one step as a task of its own, which a stop, a lost lease or a drain cancels."""
        step = claimed.step
        self.runtime.faults.hit("step.before_start")
        task = asyncio.get_running_loop().create_task(self._body(claimed), name=f"pai-{step.kind}-{step.step_id}")
        self._tasks[step.step_id] = (step, task)
        self.executed += 1
        started, outcome = perf_counter(), Outcome.lost
        try:
            following = await task
            outcome = self._outcomes.get(task, Outcome.done)
            return following
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return []
        except (StepLost, Fenced):
            logger.info("A step was taken over by somebody else: %s", named(claimed.thread, step))
            return []
        except Unavailable as error:
            outcome = Outcome.broken
            logger.warning("A step is given up, its lease runs out (%s): %s", error, named(claimed.thread, step))
            return []
        except Exception:
            outcome = Outcome.broken
            logger.exception("A step failed in the worker, its lease runs out: %s", named(claimed.thread, step))
            return []
        finally:
            self._outcomes.pop(task, None)
            self.metrics.steps.labels(step.kind, outcome.value).inc()
            self.metrics.seconds.labels(step.kind).observe(perf_counter() - started)
            # A blocked process may have lost the step and claimed it again meanwhile.
            if self._tasks.get(step.step_id) == (step, task):
                del self._tasks[step.step_id]
                self._ending.discard(step.step_id)

    def ends_as(self, outcome: Outcome) -> None:
        """Called in a step that ends in another way than `done`."""
        task = asyncio.current_task()
        if task is not None:
            self._outcomes[task] = outcome

    async def ending(self, step: Step, commit: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the commit of a step. From here on it is not cancelled any more: the fence in SQL decides.

        A commit that was cut off could have happened, and the steps it created would wait for their leases. While the
        database is away it is tried again, so that finished work is not done again: whoever might take the step over
        needs the database too. Raises StepLost.
        """
        self._ending.add(step.step_id)
        return await patiently(lambda: commit(*args, **kwargs))

    def pace(self, *, awaited: bool) -> contextlib.AbstractAsyncContextManager[None]:
        """Around a commit. `awaited`: somebody waits for what comes after it.

        When every slot is taken nothing can begin here, so that nothing is worth waiting for.
        """
        full = len(self._entered) >= self.runtime.settings.worker_concurrency
        return contextlib.nullcontext() if awaited or full else self._pace.place()

    async def _body(self, claimed: Claim) -> list[Claim]:
        match StepKind(claimed.step.kind):
            case StepKind.model:
                return await run_model(self, claimed)
            case StepKind.tool:
                return await run_tool(self, claimed)
            case StepKind.hook:
                return await run_hook(self, claimed)

    def stop(self, step_id: str, attempt: int) -> None:
        """A signal: attempts older than `attempt` are to be abandoned."""
        held = self._tasks.get(step_id)
        if held is not None and held[0].attempt < attempt:
            self._cancel(*held)

    def lost(self, step_id: str, attempt: int) -> None:
        """A renewal did not return the step: it is somebody else's, settled, or past its deadline."""
        held = self._tasks.get(step_id)
        if held is not None and held[0].attempt == attempt and self._may_cancel(*held):
            self.metrics.leases_lost.inc()
            logger.info("Step %s is not this worker's any more.", step_id)
            self._cancel(*held)

    def _cancel(self, step: Step, task: asyncio.Task[list[Claim]]) -> None:
        if self._may_cancel(step, task):
            task.cancel()

    def _may_cancel(self, step: Step, task: asyncio.Task[list[Claim]]) -> bool:
        """Once: a tool that is cancelled may clean up, and is not disturbed in that."""
        return step.step_id not in self._ending and not task.cancelling()

    async def drain(self, timeout: timedelta) -> None:
        """Claims nothing more, lets steps go on for a while, then hands them over."""
        self.draining = True
        tasks = [task for _, task in self._tasks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout.total_seconds())
        if ending := [task for step, task in self._tasks.values() if step.step_id in self._ending]:
            await asyncio.wait(ending, timeout=5)
        left = list(self._tasks.values())
        by_thread: dict[str, dict[str, int]] = {}
        for step, task in left:
            by_thread.setdefault(step.version, {})[step.step_id] = step.attempt
            task.cancel()
        if left:
            await asyncio.wait([task for _, task in left], timeout=5)
        for version, steps in by_thread.items():
            with contextlib.suppress(Unavailable):
                await release(self.runtime, version=version, steps=steps)
        if self._entered:
            await asyncio.wait(self._entered, timeout=5)
        if left:
            logger.info("%d steps were handed over.", len(left))
