"""What a process of PAI holds while it runs: settings, agents, the store, the event log, the way to the workers."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pai.broker import Dispatcher, create_celery, queues_of, redis_url
from pai.contract import Agent, Registry
from pai.engine.announcer import Announcer
from pai.engine.faults import Faults
from pai.engine.publication import Publication
from pai.files.provider import FileProvider, provider_of
from pai.log.connection import connect
from pai.log.ending import end
from pai.log.event_log import EventLog
from pai.log.signals import Signals
from pai.protocol.errors import Forbidden
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai.store.store import Store
from pai.store.tables import Thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, of which agent, and whose threads that reaches. `on_behalf`: the owner that a trusted caller names."""

    identity: Identity
    agent: Agent
    on_behalf: str | None = None

    @property
    def owner(self) -> str:
        return self.on_behalf or self.identity.owner

    @property
    def trusted(self) -> bool:
        return self.identity.trusted

    @property
    def acts_for(self) -> Identity:
        """Whose identity an application's code is given."""
        return self.identity if self.on_behalf is None else Identity.of_owner(self.on_behalf)

    def names(self, thread_id: str) -> dict[str, str]:
        """The parameters of a statement on the caller's thread with an id: those of `locked.NAMED`."""
        return {"owner": self.owner, "agent": self.agent.name, "thread_id": thread_id}

    def require_trust(self) -> None:
        """Raises Forbidden."""
        if not self.trusted:
            raise Forbidden("Only trusted callers may do that.")

    def sees(self, thread: Thread | None) -> bool:
        """Hidden threads do not exist for ordinary callers."""
        return thread is not None and (self.trusted or not thread.hidden)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """`replayed`: the mutation was done before, and this is its recorded result."""

    result: T
    replayed: bool = False


class Runtime:
    """Built once per process by `open`; connections are made when they are needed, so Redis may be down."""

    def __init__(
        self,
        *,
        settings: Settings,
        registry: Registry,
        store: Store,
        log: EventLog,
        signals: Signals | None = None,
        dispatcher: Dispatcher | None = None,
        faults: Faults | None = None,
        files: FileProvider | None = None,
        worker_queues: frozenset[str] = frozenset(),
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.store = store
        self.log = log
        self.signals = signals
        self.dispatcher = dispatcher
        self.faults = faults or Faults("")
        self.files = files or provider_of(settings)
        self.worker_queues = worker_queues
        self.lease_ms = round(settings.lease.total_seconds() * 1000)
        self.unused_file_ms = round(settings.unused_file_age.total_seconds() * 1000)
        self.announcer = Announcer(
            log=log,
            store=store,
            dispatcher=dispatcher,
            signals=signals,
            faults=self.faults,
            timeout=settings.publish_timeout,
        )
        self.reading: dict[str, asyncio.Task[Any]] = {}
        self.signing_secret: str | None = None
        self._background: set[asyncio.Task[Any]] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        registry: Registry,
        *,
        worker_queues: frozenset[str] = frozenset(),
    ) -> AsyncIterator["Runtime"]:
        """Everything is closed in the opposite order; what was being published is given a moment to leave."""
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(
                Store.open(settings.database_url, pool_size=settings.database_pool_size)
            )
            redis = connect(redis_url(settings))
            stack.push_async_callback(redis.aclose)
            app = create_celery(settings, queues=queues_of(settings, registry))
            dispatcher = Dispatcher(app, in_log=settings.broker_url is None)
            stack.push_async_callback(asyncio.to_thread, dispatcher.close)
            runtime = cls(
                settings=settings,
                registry=registry,
                store=store,
                log=EventLog(redis, key_life=settings.log_ttl),
                signals=Signals(redis),
                dispatcher=dispatcher,
                faults=Faults(os.environ.get("PAI_FAULTS", "")),
                worker_queues=worker_queues,
            )
            stack.push_async_callback(runtime.files.close)
            stack.push_async_callback(runtime.close)
            yield runtime

    async def settle(self, timeout: float = 2.0) -> None:
        """Waits for what is being told to the world, and for what nobody else waits for, up to `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while pending := [task for task in self._under_way if not task.done()]:
                    await asyncio.wait(pending)

    async def close(self) -> None:
        """As `settle`; what is not over then is cut off, before the store that it uses is closed."""
        await self.settle()
        await end(*self._under_way)

    @property
    def _under_way(self) -> list[asyncio.Task[Any]]:
        return [*self._background, *self.announcer.tasks]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something nobody waits for; it must handle its own errors."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def announce(self, publication: Publication) -> asyncio.Future[None]:
        """Tells the world of a committed transaction. Wait for the future only when what comes next must come after."""
        if publication.flags:
            self.deliver(publication.flags)
        return self.announcer.announce(publication)

    async def tell(self, publication: Publication) -> None:
        """As `announce`; what is told leaves before the caller's answer does, because a worker is waiting for it."""
        self.announce(publication)
        await asyncio.sleep(0)

    def deliver(self, flags: Sequence[str]) -> None:
        """Tells other threads what a committed transaction had to say to them."""
        from pai.engine.delivery import deliver  # it needs the whole engine

        self.spawn(deliver(self, flags))
