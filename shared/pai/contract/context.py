"""What a tool is given: who calls, and the effects that survive a crash.

A tool may be entered more than once for one call: after a suspension, and after the death of its worker. Every effect
through the context is remembered, so a re-entry gets what was there instead of doing it again.

A re-entry must ask for its effects in the same order. `asyncio.gather` of single effects does, also of several children
and suspensions; coroutines with more than one effect each do not, because what is remembered comes without a wait.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol, TypeVar, get_type_hints, overload

from pai.contract.child_thread import ChildThread
from pai.contract.errors import Undeclared
from pai.contract.schema import Schema, schema_of
from pai.contract.signature import Context, invoke
from pai.contract.suspension import InputT, ResumeT, Suspension
from pai.contract.tool import Tool
from pai.protocol.identity import Identity
from pai.protocol.text import clean, clean_text

T = TypeVar("T")


class Effects(Protocol):
    """What a worker does for a tool call; values are JSON here. Calls come in the order the tool makes them."""

    async def step(self, name: str, call: Callable[[], Awaitable[Any]], *, retry_safe: bool) -> Any:
        """The remembered result of `call`, or of calling it now. Raises OutcomeUnknown."""
        ...

    async def suspend(self, name: str, input: Any) -> Any:
        """The submitted payload. Raises Suspended, ChangedSinceSuspension."""
        ...

    async def data(self, name: str, value: Any) -> None:
        """Store and show the latest tool data `name`."""
        ...

    async def write_data(self, name: str, value: Any, *, id: str | None, transient: bool) -> None:
        """Add (or with an id, replace) the application's part `data-{name}`."""
        ...

    async def start(self, agent: str, child: Mapping[str, Any], *, hidden: bool) -> tuple[str, str, str]:
        """Start a thread below this one: `child` is a SendRequest. -> its thread id, version and run id."""
        ...

    async def follow(self, version: str, *, timeout: timedelta | None) -> Mapping[str, Any]:
        """What the started thread's run came to. Raises Suspended."""
        ...

    def cancelled(self) -> bool:
        """Whether the call was asked to stop."""
        ...


@dataclass(slots=True, kw_only=True)
class ToolContext(Context):
    """One call of a tool.

    `client_data` is what the agent's `client_data` type makes of the request's. `tries` counts executions of this call
    from 1. `idempotency_key` is the same in all of them: hand it to whatever the tool writes to.

    In a sync tool, which runs in a thread, wrap effects: `ctx.wait(ctx.data("progress", ...))`.
    """

    thread_id: str
    run_id: str
    message_id: str
    tool_call_id: str
    agent: str
    identity: Identity
    client_data: Any = None
    tries: int = 1
    idempotency_key: str = ""
    tool: Tool
    effects: Effects = field(repr=False)
    ui_data: Mapping[str, Schema] = field(default_factory=dict, repr=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.loop = self.loop or _running_loop()

    @property
    def cancelled(self) -> bool:
        """Whether the call was asked to stop: for sync tools to look at; async ones get `asyncio.CancelledError`."""
        return self.effects.cancelled()

    async def data(self, name: str, value: Any) -> None:
        """Show and keep the latest value of the declared tool data `name`. Raises Undeclared, ValidationFailed."""
        declared = self.tool.data.get(name)
        if declared is None:
            raise Undeclared(self.tool.name, what="tool data", name=name, declared=list(self.tool.data))
        await self.effects.data(name, declared.schema.dump(value, at=name))

    async def suspend(self, suspension: Suspension[InputT, ResumeT], input: InputT | None = None) -> ResumeT:
        """Wait, holding nothing, until somebody answers; then the tool is entered again and this returns the payload.

        Raises Undeclared, ValidationFailed, ChangedSinceSuspension.
        """
        if self.tool.suspensions.get(suspension.name) is not suspension:
            declared = list(self.tool.suspensions)
            raise Undeclared(self.tool.name, what="suspension", name=suspension.name, declared=declared)
        payload = await self.effects.suspend(suspension.name, suspension.input.dump(input, at="input"))
        return suspension.validate_resume(payload)

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        retry_safe: bool = False,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[..., T], /, *args: Any, retry_safe: bool = False, **kwargs: Any
    ) -> T: ...
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, retry_safe: bool = False, **kwargs: Any
    ) -> Any:
        """Call `function(*args, **kwargs)` once for this tool call and remember its result.

        The result is written as JSON and read back by the function's return type, on the first run too, so that a
        re-entry sees the same. Without `retry_safe`, a step that was started by an attempt that died raises
        OutcomeUnknown. Sync functions run in a thread.
        """
        name = clean_text(name)
        schema = _result_schema(function) if isinstance(function, Hashable) else _read_result_schema(function)

        async def call() -> Any:
            return schema.dump(await invoke(function, *args, **kwargs), at=name)

        return schema.load(await self.effects.step(name, call, retry_safe=retry_safe))

    async def write_data(self, name: str, value: Any, *, id: str | None = None, transient: bool = False) -> None:
        """Write the application's data part `data-{name}`, declared as `ui_data` of the agent.

        The same `id` replaces the part. A transient part is shown to whoever watches and never stored.
        Raises Undeclared, ValidationFailed.
        """
        schema = self.ui_data.get(name)
        if schema is None:
            raise Undeclared(self.agent, what="ui_data", name=name, declared=list(self.ui_data))
        await self.effects.write_data(name, schema.dump(value, at=name), id=id, transient=transient)

    async def start_thread(
        self,
        agent: str,
        message: str | Sequence[Mapping[str, Any]],
        *,
        title: str | None = None,
        category: str | None = None,
        hidden: bool = True,
        metadata: Mapping[str, Any] | None = None,
        client_data: Any = None,
    ) -> ChildThread:
        """Start work on an agent of the registry, once for this call: a new thread of the same owner, below this one.

        `message` is a text, or UserMessagePartInput parts. Await `child.result()` to follow it, or leave it: it goes on
        when this call has ended, and is stopped with this thread. A hidden child is deleted with it, too.
        Raises NotFound (agent), ValidationFailed, ThreadsTooDeep.
        """
        parts = [{"type": "text", "text": message}] if isinstance(message, str) else [dict(part) for part in message]
        thread = {"title": title, "category": category, "metadata": None if metadata is None else dict(metadata)}
        request: dict[str, Any] = {
            "message": {"parts": parts},
            "thread": {name: value for name, value in thread.items() if value is not None},
        }
        if client_data is not None:
            request["clientData"] = client_data
        thread_id, version, run_id = await self.effects.start(agent, clean(request), hidden=hidden)
        return ChildThread(agent=agent, thread_id=thread_id, version=version, run_id=run_id, effects=self.effects)

    def wait(self, effect: Awaitable[T]) -> T:
        """From the thread of a sync tool: run the effect on the worker's loop and wait for its result."""
        if self.loop is None:
            raise RuntimeError("ctx.wait needs a running event loop beside it")

        async def waited() -> T:
            return await effect

        coroutine = waited()
        if _running_loop() is self.loop:
            coroutine.close()
            if inspect.iscoroutine(effect):
                effect.close()
            raise RuntimeError("ctx.wait would block the event loop: in an async tool, await the effect")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _read_result_schema(function: Callable[..., Any]) -> Schema:
    try:
        returned = get_type_hints(function, include_extras=True).get("return", Any)
    except (NameError, TypeError):  # a lambda, a partial, a builtin: any JSON
        returned = Any
    return schema_of(Any if returned is None else returned, what=f"the result of {function!r}")


_result_schema = lru_cache(maxsize=256)(_read_result_schema)
