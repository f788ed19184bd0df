"""One conversation in the terminal: says things to a thread and shows what comes of them."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pai.cli.answers import NoAnswer, Question, questions
from pai.cli.screen import Screen, Style, shortened
from pai.cli.turn import TurnPrinter
from pai.client import (
    AgentClient,
    ConnectionState,
    PaiHttpClient,
    PaiMessage,
    RunHandle,
    RunState,
    Thread,
    ThreadState,
    create_pai_http_client,
    is_pai_tool_part,
)
from pai.protocol.errors import (
    ActionNotPending,
    NotFound,
    PaiError,
    RunGone,
    ThreadDeleted,
    TransportError,
    Unauthenticated,
    ValidationFailed,
)
from pai.protocol.state import RunStatus

_LISTED = 20
_LOOK_EVERY = 0.2


class Conversation:
    """Belongs to one event loop. Methods show what goes wrong instead of raising, and tell by what they return."""

    def __init__(self, server: PaiHttpClient, agent: str, *, screen: Screen, thread_id: str | None) -> None:
        self._server = server
        self._client: AgentClient = server.agent(agent)
        self._screen = screen
        self.agent = agent
        self.thread: Thread = self._client.thread(thread_id or self._client.new_thread_id())
        self._manifest: dict[str, Any] | None = None
        self._following: str | None = None
        self._printer = TurnPrinter(screen)
        self._printed_run: str | None = None
        self._exists = thread_id is not None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        agent: str,
        *,
        screen: Screen,
        thread_id: str | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator["Conversation"]:
        """Raises PaiError that says what to do when there is no server, no such agent, or nobody is recognised."""
        async with create_pai_http_client(url, headers=headers) as server:
            try:
                known = [listing.agent for listing in await server.list_agents()]
            except TransportError as error:
                raise PaiError(
                    f"No PAI server answers at {url}. Start one with `paictl dev`, or name one with --url."
                ) from error
            except Unauthenticated as error:
                raise PaiError(f"{url} does not know you: {error.detail} Use PAI_TOKEN, or --header.") from error
            if agent not in known:
                raise PaiError(f"{url} has no agent {agent!r}. It has: {', '.join(known)}. Name one with --agent.")
            yield cls(server, agent, screen=screen, thread_id=thread_id)

    async def begin(self, *, brief: bool = False) -> None:
        """Say where this conversation stands; show what is being answered now, or waits. `brief`: only the latter."""
        if not self._exists:
            return
        try:
            state = await self.thread.refresh()
        except PaiError as error:
            self._trouble(error)
            return
        if state.messages and not brief:
            self._screen.line(f"({len(state.messages)} messages so far; /history shows them)", Style.dim)
        waiting = [run.run_id for run in state.runs if run.status is RunStatus.waiting]
        if state.active_run_id is not None:
            await self._follow(self.thread.run(state.active_run_id))
        elif waiting:
            await self._follow(self.thread.run(waiting[0]))

    def waits_for(self) -> list[str]:
        """The names of the actions that the thread waits for, as far as it was seen."""
        state = self.thread.get_state()
        actions = (
            self.thread.get_pending_action(message, part)
            for message in state.messages
            for part in message.parts
            if is_pai_tool_part(part)
        )
        return [action.name for action in actions if action is not None]

    async def say(self, text: str) -> bool:
        """Send a message and show the answer; whether there was one."""
        try:
            run = await self.thread.send(text)
        except PaiError as error:
            self._trouble(error)
            return False
        return await self._follow(run)

    async def question(self) -> Question | None:
        """The next thing that is asked, of a person rather than of another system; None when nothing waits."""
        return min(await self._asked(), key=lambda question: question.external, default=None)

    async def look(self, question: Question) -> bool:
        """Show what became of the run that waits with the question: somebody else may have answered it."""
        return await self._follow(self.thread.run(question.action.origin.run_id))

    async def _asked(self) -> list[Question]:
        """All that the thread waits for."""
        state = self.thread.get_state()
        waiting = [run.run_id for run in state.runs if run.status is RunStatus.waiting]
        try:
            if waiting and self._manifest is None:
                self._manifest = await self._client.get_manifest()
        except PaiError as error:
            self._trouble(error)
            return []
        return [
            question
            for run_id in waiting
            for question in questions(self.thread, _output_of(state, run_id), self._manifest or {})
        ]

    async def answer(self, question: Question, typed: str) -> bool:
        """Submit an answer and show what comes of it; whether it was taken."""
        try:
            result = await question.action.submit(question.answer(typed))
        except NoAnswer as error:
            self._screen.line(str(error), Style.red)
            return False
        except ActionNotPending as error:
            self._trouble(error)
            await self.look(question)
            return False
        except PaiError as error:
            self._trouble(error)
            if not isinstance(error, ValidationFailed):
                await self.thread.refresh()
            return False
        return await self._follow(result.run or self.thread.run(question.action.origin.run_id))

    async def stop(self) -> None:
        """Stop what runs or waits."""
        try:
            if self.thread.get_state().capabilities.can_stop or (await self.thread.refresh()).capabilities.can_stop:
                await self.thread.stop(reason="stopped in the terminal")
                if self._following is None:
                    self._screen.line("(stopped)", Style.yellow)
            else:
                self._screen.line("Nothing runs.", Style.dim)
        except PaiError as error:
            self._trouble(error)

    async def renew(self) -> None:
        """Go on in a new thread."""
        self.thread = self._client.thread(self._client.new_thread_id())
        self._screen.line(f"A new thread: {self.thread.thread_id}", Style.dim)

    async def list_threads(self) -> None:
        """The latest threads."""
        try:
            listed = await self._client.threads.list(limit=_LISTED)
        except PaiError as error:
            self._trouble(error)
            return
        for summary in listed.items:
            title = shortened(summary.title.value, 50) if summary.title else ""
            here = "*" if summary.thread_id == self.thread.thread_id else " "
            self._screen.line(f"{here} {summary.thread_id}  {summary.status:<8} {summary.updated_at[:16]}  {title}")
        if not listed.items:
            self._screen.line("There are no threads yet.", Style.dim)

    async def show_history(self) -> None:
        """All messages of the thread."""
        try:
            state = await self.thread.refresh()
        except PaiError as error:
            self._trouble(error)
            return
        for message in state.messages:
            if message.role == "user":
                self._screen.line(f"you> {message.text}", Style.bold)
            else:
                TurnPrinter(self._screen).show([message])
                self._screen.end_line()

    async def _follow(self, run: RunHandle) -> bool:
        """Show the run until it ends or waits for somebody; whether it went well."""
        if run.run_id != self._printed_run:  # a run that goes on after an answer is not shown again from its start
            self._printer, self._printed_run = TurnPrinter(self._screen), run.run_id
        self._following = run.run_id
        lookout = asyncio.create_task(self._tell_of_reconnects())
        ended: RunState | None = None
        try:
            async with aclosing(run.watch(stop_on="idle")) as states:
                async for state in states:
                    self._printer.show(_output_of(state, run.run_id))
                    ended = state.run(run.run_id)
                    if _asks(state, ended):
                        break
        except (RunGone, ThreadDeleted) as error:
            self._trouble(error)
            return False
        except PaiError as error:
            self._trouble(error)
            return False
        finally:
            lookout.cancel()
            self._following = None
            self._screen.end_line()
        if ended is not None and ended.status is RunStatus.waiting:
            await self._show_asked(ended.run_id)
        return self._conclude(ended)

    async def _show_asked(self, run_id: str) -> None:
        symbol = self._screen.symbol("⏸", "?")
        for question in await self._asked():
            if question.action.origin.run_id != run_id:
                continue
            for line in question.lines:
                self._screen.line(f"  {line if line[0] == ' ' else f'{symbol} {line}'}", Style.yellow)

    def _conclude(self, run: RunState | None) -> bool:
        match run:
            case RunState(status=RunStatus.failed, error=error):
                self._screen.line(f"The run failed: {error.message if error else 'for an unknown reason'}", Style.red)
                return False
            case RunState(status=RunStatus.cancelled):
                self._screen.line("(stopped)", Style.yellow)
            case RunState(status=RunStatus.waiting):
                self._screen.line("(waits for an answer; /stop ends it)", Style.yellow)
            case RunState(status=RunStatus.completed, finish_reason=reason) if reason not in ("stop", None):
                self._screen.line(f"(ended: {reason})", Style.yellow)
        return run is not None

    async def _tell_of_reconnects(self) -> None:
        broken = False
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            reconnecting = self.thread.connection is ConnectionState.reconnecting
            if reconnecting and not broken:
                self._screen.line("reconnecting…", Style.yellow)
            elif broken and not reconnecting:
                self._screen.line("connected again", Style.dim)
            broken = reconnecting

    def _trouble(self, error: PaiError) -> None:
        hint = " /new begins another." if isinstance(error, ThreadDeleted | NotFound) else ""
        self._screen.line(f"{error.detail}{hint}", Style.red)


def _asks(state: ThreadState, run: RunState | None) -> bool:
    """Whether the run waits for an answer. One that waits for another thread goes on by itself."""
    return run is not None and run.status is RunStatus.waiting and state.capabilities.can_respond_to_actions


def _output_of(state: ThreadState, run_id: str) -> list[PaiMessage]:
    return list(reversed(list(_latest(state, run_id))))


def _latest(state: ThreadState, run_id: str) -> Iterator[PaiMessage]:
    """From the end up to the run's input: a long thread is not read again for every word."""
    for message in reversed(state.messages):
        if message.metadata.pai.run_id == run_id:
            if message.metadata.pai.relation == "input":
                return
            if message.role == "assistant":
                yield message
