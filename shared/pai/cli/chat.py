"""`paictl chat`: a conversation at the keyboard, or with a script's standard input."""

import argparse
import os
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress

from pai.cli.called import command
from pai.cli.conversation import Conversation
from pai.cli.environment import read_settings
from pai.cli.loop_thread import LoopThread
from pai.cli.screen import Screen, Style
from pai.protocol.errors import PaiError

_PROMPT = "you> "
_COMMANDS: dict[str, tuple[str, Callable[[Conversation], Awaitable[None]]]] = {
    "/stop": ("stop what runs or waits", Conversation.stop),
    "/new": ("go on in a new thread", Conversation.renew),
    "/threads": ("the latest threads", Conversation.list_threads),
    "/history": ("all messages of this thread", Conversation.show_history),
}


WAITS = 3
"""Exit code of a script, or a message on the command line, that leaves a run waiting for an answer."""


class _Quit(Exception):
    """Leave, although there may be more input."""


def run(options: argparse.Namespace) -> int:
    """Exit code 1 when something that was said, by a script or on the command line, got no answer; 3 (`WAITS`) when
    the run waits for one itself, and the next `paictl chat --thread` gives it."""
    screen = Screen(sys.stdout)
    with LoopThread() as loop:
        stack = AsyncExitStack()
        try:
            opened = Conversation.open(
                _url(options.url), options.agent, screen=screen, thread_id=options.thread, headers=_headers(options)
            )
            conversation = loop.run(stack.enter_async_context(opened))
            chat = Chat(loop, conversation, screen, go_on=_go_on(options))
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on Ctrl-C is part of the talk
            return chat.run([" ".join(options.message)] if options.message else None)
        finally:
            loop.run(stack.aclose())


def _go_on(options: argparse.Namespace) -> str:
    """The command that goes on with a thread, but for its id."""
    named = [("--agent", options.agent if options.agent != "main" else None), ("--url", options.url)]
    given = [f"{name} {shlex.quote(value)}" for name, value in named if value]
    return " ".join([command(), "chat", *given, "--thread"])


def _url(given: str | None) -> str:
    if url := given or os.environ.get("PAI_URL"):
        return url if "://" in url else f"http://{url}"
    return f"http://127.0.0.1:{read_settings().port}"


def _headers(options: argparse.Namespace) -> dict[str, str]:
    """Raises PaiError for what cannot be a header."""
    headers: dict[str, str] = {}
    if token := options.token or os.environ.get("PAI_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    for given in options.header or ():
        name, colon, value = given.partition(":")
        headers[name.strip().lower()] = value.strip()
        if not (colon and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip())):
            raise PaiError(f"{given!r} is no header: use --header 'Name: value'.")
    if wrong := [name for name, value in headers.items() if not (value.isascii() and value.isprintable())]:
        raise PaiError(f"The header {wrong[0]} has characters that no header may have.")
    return headers


class Chat:
    """The main thread's side: reads lines, starts what they ask for in the loop, and turns Ctrl-C into a stop.

    `go_on` is the command that goes on with the thread, but for its id.
    """

    def __init__(self, loop: LoopThread, conversation: Conversation, screen: Screen, *, go_on: str) -> None:
        self._loop = loop
        self._go_on = go_on
        self._conversation = conversation
        self._screen = screen
        self._interrupted = False
        self._prompt = _PROMPT
        self._lines: Iterator[str] = iter(())

    def run(self, messages: list[str] | None = None) -> int:
        """Say `messages`, or what standard input says; the exit code. What a waiting run asks is answered first."""
        typed = messages is None and sys.stdin.isatty()
        went_well = True
        self._lines = iter(messages) if messages else self._typed() if typed else iter(sys.stdin)
        with suppress(_Quit):
            if typed:
                self._greet()
            self._finish(self._loop.start(self._conversation.begin(brief=not typed)))
            self._ask()
            for line in self._lines:
                went_well &= self._take(line.strip())
                self._ask()
        return self._leave(typed=typed, went_well=went_well)

    def _leave(self, *, typed: bool, went_well: bool) -> int:
        thread_id = self._conversation.thread.thread_id
        if typed:
            self._screen.line(f"Go on later: --thread {thread_id}", Style.dim)
            return 0
        if waits_for := self._conversation.waits_for():
            self._screen.line(f"Waits for {', '.join(waits_for)}. Go on: {self._go_on} {thread_id}", Style.yellow)
            return WAITS
        return 0 if went_well else 1

    def _ask(self) -> None:
        """Put the questions that the run waits with, until it goes on or there is no more input.

        An empty line looks whether somebody else has answered meanwhile.
        """
        while (question := self._loop.run(self._conversation.question())) is not None:
            self._prompt = question.prompt
            line = next(self._lines, None)
            self._prompt = _PROMPT
            if line is None:
                return
            line = line.strip()
            if line.startswith("/"):
                self._take(line)
            elif line:
                self._finish(self._loop.start(self._conversation.answer(question, line)))
            else:
                self._finish(self._loop.start(self._conversation.look(question)))

    def _greet(self) -> None:
        self._screen.line(f"You talk to {self._conversation.agent}. /help lists the commands.", Style.dim)

    def _typed(self) -> Iterator[str]:
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() editing and history
        while True:
            try:
                line = input(self._prompt)
            except EOFError:
                self._screen.line()
                return
            except KeyboardInterrupt:
                self._screen.line()
                if self._interrupted:
                    return
                self._interrupted = True
                self._screen.line("(Ctrl-C again, or /quit, leaves)", Style.dim)
                continue
            self._interrupted = False
            yield line

    def _take(self, line: str) -> bool:
        """One line; whether it went well. Raises _Quit."""
        if not line:
            return True
        if not line.startswith("/"):
            return bool(self._finish(self._loop.start(self._conversation.say(line))))
        if line == "/quit":
            raise _Quit
        if line == "/help":
            for name, (meaning, _) in _COMMANDS.items():
                self._screen.line(f"{name:<9} {meaning}")
            self._screen.line("/quit     leave; the thread stays")
            self._screen.line("Ctrl-C    stop the answer that is being made; at a prompt, twice leaves")
        elif command := _COMMANDS.get(line):
            self._finish(self._loop.start(command[1](self._conversation)))  # type: ignore[arg-type]
        else:
            self._screen.line(f"There is no command {line}; /help lists them.", Style.red)
            return False
        return True

    def _finish(self, work: "Future[bool] | Future[None]") -> bool | None:
        """Wait. The first Ctrl-C stops the run, whose end is still shown; the second one leaves."""
        try:
            return work.result()
        except KeyboardInterrupt:
            self._screen.line("stopping… (Ctrl-C again leaves)", Style.yellow)
        try:
            self._loop.run(self._conversation.stop())
            return work.result()
        except KeyboardInterrupt:
            raise _Quit from None
