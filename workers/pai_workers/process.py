"""The worker process: Celery in the main thread, the event loop that runs the steps in another, leases in a third."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

from celery import Celery, signals  # type: ignore[import-untyped]
from celery.worker.request import Request  # type: ignore[import-untyped]

from pai.broker import create_celery, queues_of
from pai.contract import Registry
from pai.engine.runtime import Runtime
from pai.heap import keep_what_started
from pai.log.publisher import Publisher
from pai.settings import Settings
from pai.step_message import STEP_TASK
from pai.store.schema import check_schema
from pai_workers.catalog import Models
from pai_workers.file_sweep import sweep_files_forever
from pai_workers.leases import Leases
from pai_workers.runner import Runner
from pai_workers.slots import Received, Slots
from pai_workers.sweep import sweep_forever
from pai_workers.trigger_sweep import sweep_triggers_forever

TOOL_THREADS = "pai-tool"

logger = logging.getLogger(__name__)


class Process:
    """The event loop of a worker process, in a thread of its own, with everything that lives in it."""

    def __init__(self, settings: Settings, registry: Registry, *, queues: frozenset[str]) -> None:
        self._settings = settings
        self._registry = registry
        self._queues = queues
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="pai-loop", daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.runner: Runner | None = None

    def start(self) -> None:
        """Returns when steps can be run. Raises what kept it from that."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def begin(self, step_id: str) -> "Future[None] | None":
        """For Celery's thread: executes a step and what follows; done when that is over. None when it is too late."""
        runner, loop = self.runner, self.loop
        if runner is None or loop is None or runner.draining:
            return None
        step = asyncio.run_coroutine_threadsafe(runner.run(step_id), loop)
        step.add_done_callback(_told)
        return step

    def begin_drain(self) -> None:
        """Told to stop: nothing more is claimed, and what runs gets a while. Does not block."""
        if self.loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._stop.set)

    def join(self) -> None:
        """Returns when every step has ended or was handed over."""
        self.begin_drain()
        self._thread.join()

    @property
    def failed(self) -> bool:
        """Whether the event loop ended by itself."""
        return self._failure is not None

    @property
    def threads_busy(self) -> bool:
        """Whether a sync tool still runs in a thread, which nothing can interrupt."""
        return any(thread.name.startswith(TOOL_THREADS) for thread in threading.enumerate() if thread.is_alive())

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                loop = runner.get_loop()
                live = loop.create_task(self._live())
                while not live.done():
                    _run_on(loop, live)
        except BaseException as error:
            self._failure = error
            if self._ready.is_set():  # before that, `start` raises it
                logger.exception("The worker's event loop ended.")
        finally:
            started = self._ready.is_set()
            self._ready.set()
        if started and self._failure is not None:
            # Without the loop this process would only eat messages.
            os.kill(os.getpid(), signal.SIGTERM)

    async def _live(self) -> None:
        settings = self._settings
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(
                Runtime.open(settings, self._registry, worker_queues=self._queues)
            )
            await check_schema(runtime.store)
            publisher = await stack.enter_async_context(Publisher(runtime.log))
            models = Models(settings)
            stack.push_async_callback(models.close)
            await models.prepare(self._registry)
            threads = ThreadPoolExecutor(settings.worker_concurrency, thread_name_prefix=TOOL_THREADS)
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            runner = self.runner = Runner(runtime, publisher, models=models, threads=threads)
            metrics = runner.metrics
            metrics.watch(running=lambda: len(runner.held()), slots=settings.worker_concurrency)
            stack.enter_context(metrics.served(settings.host, settings.worker_metrics_port))
            leases = Leases(
                settings.database_url,
                worker=runner.worker_id,
                lease=settings.lease,
                interval=settings.renew_interval,
                held=runner.held,
                lost=runner.lost,
                working_on=runner.working_on,
                loop=self.loop,
                metrics=metrics,
            )
            stack.callback(leases.close)
            leases.start()
            if runtime.signals is not None:
                await stack.enter_async_context(runtime.signals.listen(runner.stop))
            sweeps = [
                self.loop.create_task(sweep_forever(runtime, leases, metrics), name="pai-sweep"),
                self.loop.create_task(sweep_triggers_forever(runtime, metrics), name="pai-sweep-triggers"),
                self.loop.create_task(sweep_files_forever(runtime), name="pai-sweep-files"),
            ]
            for sweep in sweeps:
                stack.push_async_callback(_cancelled, sweep)
            self._ready.set()
            await self._stop.wait()
            for sweep in sweeps:
                sweep.cancel()
            await runner.drain(settings.drain_seconds)


def _run_on(loop: asyncio.AbstractEventLoop, live: asyncio.Task[None]) -> None:
    """Returns when `live` has ended, or when something else ended in a way that asyncio lets out of its loop.

    That is a task which an application's code began; whoever awaits it is told. Raises what `live` raises.
    """
    try:
        loop.run_until_complete(live)
    except (SystemExit, KeyboardInterrupt):
        if live.done():
            raise
        logger.exception("A task tried to end the worker, which goes on.")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, as uvicorn does."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _told(step: "Future[None]") -> None:
    if not step.cancelled() and (error := step.exception()) is not None:
        logger.error("A step failed in the worker, its lease runs out.", exc_info=error)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def run_worker(settings: Settings, registry: Registry, *, on_ready: Callable[[], None] | None = None) -> None:
    """Runs a worker in this process until it is told to stop (SIGTERM, SIGINT). Blocks.

    Raises SystemExit when it ends for another reason, so that whoever watches over it starts it again.
    """
    named = queues_of(settings, registry)
    queues = frozenset(settings.queues) or named
    app = create_celery(settings, queues=named | queues)
    process = Process(settings, registry, queues=queues)
    process.start()
    worker = app.Worker(
        pool_cls=Slots,
        concurrency=settings.worker_concurrency,
        queues=sorted(queues),
        without_gossip=True,
        without_mingle=True,
        loglevel=settings.log_level,
        optimization="fair",
        quiet=True,
    )
    _connect(app, process, worker.pool, on_ready=on_ready)
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_what_started()
    try:
        worker.start()
    finally:
        process.join()
        code = worker.exitcode or int(process.failed)
        if process.threads_busy:
            # A sync tool that does not end must not keep a stopped worker; its call was handed over.
            logging.shutdown()
            os._exit(code)
    if code:
        raise SystemExit(code)


def _connect(app: Celery, process: Process, slots: Slots, *, on_ready: Callable[[], None] | None) -> None:
    request = Received if all(queue.no_ack for queue in app.conf.task_queues) else Request

    @app.task(name=STEP_TASK, Request=request)  # type: ignore[untyped-decorator]
    def run_step(step_id: str) -> None:
        step = process.begin(step_id)
        if step is not None:
            slots.hold(step)

    def shutting_down(**_: Any) -> None:
        process.begin_drain()

    def ready(**_: Any) -> None:
        if on_ready is not None:
            on_ready()

    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.worker_ready.connect(ready, weak=False)
