"""A watcher that knows nothing but the wire: it follows a thread over raw server-sent events and folds what it gets.

It checks as it goes: a sequence never names two events, and no text is ever shown that the whole text does not begin
with.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import httpx

from pai.fold import Fold, FoldError
from pai.protocol.sse import SseDecoder
from pai.protocol.state import QueueState
from pai.protocol.usage import empty_usage
from support.chaos_agents import words
from support.waiting import wait_until

COMPARED = ("messages", "runs", "activeRunId", "queue", "usage", "capabilities", "error")
_NEW = {"queue": QueueState().wire(), "usage": empty_usage().wire(), "error": None}
"""What the first event of a thread need not say."""
_LONGEST = words(2_000)


class Book:
    """Every event that anybody saw, by version and sequence."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int], str] = {}

    def note(self, event: dict[str, Any]) -> None:
        """Positions of resets and deletions that the API makes are no numbers of the log."""
        if event["type"] in ("chunk", "update"):
            text = json.dumps(event, sort_keys=True)
            known = self.events.setdefault((event["version"], event["sequence"]), text)
            assert known == text, f"one sequence names two events: {known} and {text}"


class Follower:
    """The state of one thread, from events alone; a snapshot is asked for when the wire's rules say so.

    `cut_every`: it hangs up after so many events and comes again. `forgetful`: then it forgets what it had, too.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        urls: Sequence[str],
        thread_id: str,
        *,
        book: Book | None = None,
        cut_every: int | None = None,
        forgetful: bool = False,
    ) -> None:
        self.version: str | None = None
        self.sequence = self.revision = 0
        self.state: dict[str, Any] = {}
        self.log: list[dict[str, Any]] = []
        self.snapshots = self.connections = 0
        self._http = http
        self._urls = urls
        self._thread_id = thread_id
        self._book = book or Book()
        self._cut_every = cut_every
        self._forgetful = forgetful
        self._folds: dict[str, Fold] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._runs: dict[str, dict[str, Any]] = {}

    @property
    def shown(self) -> dict[str, Any]:
        """What can be compared with the server's state."""
        messages = [self._folds[key].message if key in self._folds else one for key, one in self._messages.items()]
        return {**self.state, "messages": messages, "runs": list(self._runs.values())}

    @property
    def idle(self) -> bool:
        return self.revision > 0 and self.state["thread"]["status"] == "idle"

    async def follow(self) -> None:
        """Follows for ever, across whatever happens to the API."""
        while True:
            url = self._urls[self.connections % len(self._urls)]
            self.connections += 1
            with suppress(httpx.HTTPError):
                await self._connect(f"{url}/threads/{self._thread_id}")
            await asyncio.sleep(0.01)

    async def _connect(self, url: str) -> None:
        if self._forgetful:
            self.version, self.sequence, self.revision = None, 0, 0
        if self.version is None:
            await self._repair(url, needed=0)
        headers = {} if self.version is None else {"last-event-id": f"{self.version}:{self.sequence}"}
        taken = 0
        async with self._http.stream("GET", f"{url}/watch", headers=headers) as response:
            if response.status_code != 200:
                return
            decoder = SseDecoder()
            async for piece in response.aiter_bytes():
                for event in decoder.feed(piece):
                    await self._take(url, json.loads(event.data))
                    taken += 1
                    if self._cut_every is not None and taken > self._cut_every:
                        return

    async def _take(self, url: str, event: dict[str, Any]) -> None:
        self.log.append(event)
        if event["type"] == "ready":
            if self.version is None and event["version"] is not None:
                # The thread was made between the snapshot that found none and this stream, which begins later.
                await self._repair(url, needed=event["sequence"])
            return
        self._book.note(event)
        if event["type"] == "deleted":
            self.version = None
        elif not self.apply(event):
            await self._repair(url, needed=event["sequence"] if event["version"] == self.version else 0)
        self._check()

    def apply(self, event: dict[str, Any]) -> bool:
        """-> False when only a snapshot helps."""
        if event["type"] == "update" and event["revision"] == 1 and self.version is None:
            self.version, self.sequence, self.revision = event["version"], event["sequence"] - 1, 0
            self.state, self._messages, self._runs, self._folds = dict(_NEW), {}, {}, {}
        if event["version"] != self.version or event["type"] == "reset" or event["sequence"] > self.sequence + 1:
            return False
        revision = event.get("revision")
        if event["sequence"] <= self.sequence or (revision is not None and revision <= self.revision):
            self.sequence = max(self.sequence, event["sequence"])
            return True
        if revision is not None and revision != self.revision + 1:
            return False
        try:
            if event["type"] == "chunk":
                self._fold(event["messageId"]).apply(event["chunk"])
            else:
                self._update(event["changes"])
                self.revision = event["revision"]
        except (FoldError, KeyError):
            return False
        self.sequence = event["sequence"]
        return True

    def _fold(self, message_id: str, folding: Any = None) -> Fold:
        if message_id not in self._folds:
            self._folds[message_id] = Fold(self._messages[message_id], folding)
        return self._folds[message_id]

    def _update(self, changes: dict[str, Any]) -> None:
        for message in changes.get("messages", ()):
            assert "parts" in message, "facts alone are not expected here"
            self._messages[message["id"]] = message
            self._folds.pop(message["id"], None)
        for message_id in changes.get("removedMessageIds", ()):
            self._messages.pop(message_id, None)
            self._folds.pop(message_id, None)
        self._runs |= {run["runId"]: run for run in changes.get("runs", ())}
        for run_id in changes.get("removedRunIds", ()):
            self._runs.pop(run_id, None)
        self.state |= {name: changes[name] for name in ("thread", *COMPARED[2:]) if name in changes}

    async def _repair(self, url: str, *, needed: int) -> None:
        """A snapshot that is not older than what was shown."""
        for _ in range(600):
            response = await self._http.get(url)
            if response.status_code == 404:
                self.version = None
                return
            if response.status_code == 200:
                state = response.json()
                older = state["sequence"] < max(self.sequence, needed) or state["revision"] < self.revision
                if state["thread"]["version"] != self.version or not older:
                    self._take_snapshot(state)
                    return
            await asyncio.sleep(0.02)
        raise AssertionError(f"only snapshots older than {max(self.sequence, needed)} came")

    def _take_snapshot(self, state: dict[str, Any]) -> None:
        self.snapshots += 1
        self.version = state["thread"]["version"]
        self.sequence, self.revision = state["sequence"], state["revision"]
        self.state = {name: state[name] for name in ("thread", *COMPARED[2:])}
        self._messages = {message["id"]: message for message in state["messages"]}
        self._runs = {run["runId"]: run for run in state["runs"]}
        self._folds = {}
        for message_id, folding in state["folding"].items():
            self._fold(message_id, folding)

    def _check(self) -> None:
        for message in self.shown["messages"]:
            if message["role"] == "assistant":
                for part in message["parts"]:
                    if part["type"] == "text":
                        assert _LONGEST.startswith(part["text"]), f"lost or repeated: {part['text']}"


@asynccontextmanager
async def following(*followers: Follower) -> AsyncIterator[None]:
    """The followers run meanwhile; what one of them finds wrong ends the test at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follower.follow()) for follower in followers]
        yield
        for task in tasks:
            task.cancel()


async def caught_up(http: httpx.AsyncClient, url: str, *followers: Follower, saw: Callable[[], Any]) -> dict[str, Any]:
    """Waits until the thread is idle and all followers show what the server shows. -> the server's state."""
    state: dict[str, Any] = {}

    async def same() -> bool:
        nonlocal state
        response = await http.get(url)
        if response.status_code != 200 or response.json()["thread"]["status"] != "idle":
            return False
        state = response.json()
        return all(follower.revision >= state["revision"] for follower in followers)

    def seen() -> Any:
        return state, [(one.sequence, one.revision, one.snapshots, one.log[-3:]) for one in followers], saw()

    await wait_until(same, timeout=timedelta(seconds=60), saw=seen)
    for follower in followers:
        shown = follower.shown
        for name in COMPARED:
            assert shown[name] == state[name], name
    return state


async def say(http: httpx.AsyncClient, url: str, thread_id: str, text: str, **fields: Any) -> httpx.Response:
    """Sends one message, as a page does."""
    body = {"message": {"parts": [{"type": "text", "text": text}]}, **fields}
    return await http.post(f"{url}/threads/{thread_id}/send", json=body)


def texts(state: dict[str, Any]) -> list[str]:
    """What the assistant said, message by message."""
    return [
        "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        for message in state["messages"]
        if message["role"] == "assistant"
    ]


def outputs(state: dict[str, Any]) -> list[str]:
    """How the calls ended: outputs and error texts."""
    return [
        part.get("output") or part["errorText"]
        for message in state["messages"]
        for part in message["parts"]
        if part["type"].startswith("tool-")
    ]
