"""An engine for races: it hears of each transaction of a thread, so that no round has to look for its moment."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from engine_agent import Stage, registry_of
from engine_parts import Engine, text_of
from engine_rules import check_rules

from pai.engine import api
from pai.engine.announcer import Announcer
from pai.engine.publication import Publication
from pai.models import ModelRequest, ScriptedModel
from pai.models.chunks import tool_call
from pai.models.scripted import Script, says
from pai.settings import Settings
from pai.store.tables import Thread

ROUNDS = int(os.environ.get("PAI_TEST_ROUNDS", "40"))
"""Of each race, on each of the two databases. More of them find more, and 250 take some minutes."""
PER_THREAD = 8
"""Rounds on one thread, whose runs follow each other."""
AT_ONCE = 6
"""Threads that are raced on together, so that a round goes at every pace."""
PATIENCE = timedelta(seconds=60)


class Racing(Engine):
    """Its model answers `ask ...` with a call that people answer, `say ...` at once, and everything else with a call of
    `echo` first. The answer is what was asked."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.model = ScriptedModel(self._say)
        self.stage = Stage()
        self.registry = registry_of(self.model, self.stage)
        self._threads: dict[tuple[str, str], Thread] = {}
        """What the latest transaction of each thread has left, by subject and id."""
        self._woken: dict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)

    def _say(self, request: ModelRequest) -> Script:
        last = request.messages[-1]
        asked = [text_of(message) for message in request.messages if message["role"] == "user"]
        if last["role"] == "user" and asked[-1].startswith("ask"):
            return tool_call(f"c{len(request.messages)}", "pick", {"title": asked[-1]})
        if last["role"] == "user" and not asked[-1].startswith("say"):
            return tool_call(f"c{len(request.messages)}", "echo", {"words": asked[-1]})
        return says("re: ", asked[-1])

    @asynccontextmanager
    async def racing(self) -> AsyncIterator["Racing"]:
        """With its rules checked at the end."""
        async with self.running():
            runtimes = self.processes
            for runtime in runtimes:
                self._listen(runtime.announcer)
            yield self
            for runtime in runtimes:
                await runtime.settle()
            await check_rules(self)

    def _listen(self, announcer: Announcer) -> None:
        real = announcer.announce

        def announce(publication: Publication) -> asyncio.Future[None]:
            thread = publication.thread
            key = (thread.owner.partition("/")[2], thread.thread_id)
            before = self._threads.get(key)
            if before is None or before.revision < thread.revision:
                self._threads[key] = thread
            self._woken.pop(key, asyncio.Event()).set()
            return real(publication)

        announcer.announce = announce  # type: ignore[method-assign]

    def now(self, thread: str, *, subject: str = "ann") -> Thread:
        """What the latest transaction of the thread has left."""
        return self._threads[subject, thread]

    async def reaches(self, reached: Callable[[Thread], bool], thread: str, *, subject: str = "ann") -> Thread:
        """What the latest transaction of the thread has left, once that is true of it."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while not reached(self.now(thread, subject=subject)):
                await self._woken[subject, thread].wait()
        return self.now(thread, subject=subject)

    async def ended(self, thread: str, *, subject: str = "ann") -> dict[str, Any]:
        """The snapshot once the thread is idle."""
        await self.reaches(lambda now: now.status == "idle", thread, subject=subject)
        state = await api.get_state(self.runtime, self.caller(subject), thread)
        assert state is not None
        return state.wire()

    async def moment(self, thread: str, *, revisions: int) -> None:
        """Anywhere within what makes that many more revisions, however long it takes, or once the thread rests."""
        reached = self.now(thread).revision + random.randint(0, revisions)
        await self.reaches(lambda now: now.revision >= reached or now.status == "idle", thread)
        await asyncio.sleep(random.uniform(0, 0.01))

    async def rounds(self, play: Callable[[str, int], Awaitable[None]], *, per_thread: int = PER_THREAD) -> None:
        """Plays so many rounds on one thread after the other, on several of them at once."""
        threads = iter(range(-(-ROUNDS // per_thread)))

        async def player() -> None:
            for number in threads:
                await play(f"t{number}", per_thread)

        await asyncio.gather(*(player() for _ in range(AT_ONCE)))


def said_by_people(state: dict[str, Any]) -> list[str]:
    return [text_of(message) for message in state["messages"] if message["role"] == "user"]
