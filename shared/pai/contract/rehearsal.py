"""A tool call without a worker: for the tests of an application.

rehearsal = Rehearsal(agent, "publish_post", answers={"approval": {"approved": True}})
assert await rehearsal.run({"title": "Hello", "body": "..."}) == {"published": True, "url": ...}
assert rehearsal.steps == ["publish"]
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from pai.contract.agent import Agent
from pai.contract.contained import Suspended, contained, in_thread
from pai.contract.context import ToolContext
from pai.contract.tool import ToolKind
from pai.protocol.identity import Identity


class Rehearsal:
    """Runs a server tool with its input and output checked as a worker does, and keeps what it did.

    Suspensions are answered from `answers` (JSON); one without an answer ends `run`, which then returns None and leaves
    `(name, input)` in `pending`. Run it again with the answer added: remembered steps are not done twice. Threads that
    it starts are in `started`; one that it follows is answered under its agent's name, with its text.
    """

    def __init__(
        self,
        agent: Agent,
        tool: str,
        *,
        answers: Mapping[str, Any] | None = None,
        client_data: Any = None,
        identity: Identity | None = None,
    ) -> None:
        self.answers: dict[str, Any] = dict(answers or {})
        self.pending: tuple[str, Any] | None = None
        self.outputs: list[Any] = []
        self.steps: list[str] = []
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.tool_data: dict[str, Any] = {}
        self.data_parts: list[dict[str, Any]] = []
        self.stopping = False
        self._agent = agent
        self._tool = agent.tools[tool]
        self._client_data = agent.read_client_data(client_data) if client_data is not None else None
        self._identity = identity or Identity(subject="rehearsal")
        self._tries = 0
        self._ordinal = 0
        self._remembered: dict[int, Any] = {}

    async def run(self, input: Any) -> Any:
        """The output as JSON; of a generator, the last one (all of them are in `outputs`).

        Raises what the tool raises (Escaped for what is no Exception), ToolInputInvalid, ToolOutputInvalid.
        """
        if self._tool.kind is not ToolKind.server:
            raise TypeError(f"{self._tool.name} is a {self._tool.kind} tool: there is nothing to run")
        arguments = self._tool.validate_input(input)
        self._tries, self._ordinal, self.pending, self.outputs = self._tries + 1, 0, None, []
        try:
            with contained():
                await self._call(arguments)
        except Suspended:
            return None
        return self.outputs[-1] if self.outputs else None

    async def _call(self, arguments: Mapping[str, Any]) -> None:
        context = self.context()
        if self._tool.is_generator:
            async for output in self._tool.call(context, arguments):
                self.outputs.append(self._tool.dump_output(output))
        elif self._tool.is_async:
            self.outputs.append(self._tool.dump_output(await self._tool.call(context, arguments)))
        else:
            result = await asyncio.to_thread(in_thread, self._tool.call, context, arguments)
            self.outputs.append(self._tool.dump_output(result))

    def context(self) -> ToolContext:
        """The context that `run` hands to the tool."""
        return ToolContext(
            thread_id="thread",
            run_id="run",
            message_id="message",
            tool_call_id="call",
            agent=self._agent.name,
            identity=self._identity,
            client_data=self._client_data,
            tries=self._tries,
            idempotency_key="call",
            tool=self._tool,
            effects=self,
            ui_data=self._agent.ui_data,
        )

    async def step(self, name: str, call: Callable[[], Awaitable[Any]], *, retry_safe: bool) -> Any:
        async def taken() -> Any:
            self.steps.append(name)
            return await call()

        return await self._once(taken)

    async def suspend(self, name: str, input: Any) -> Any:
        async def answered() -> Any:
            if name not in self.answers:
                self.pending = self.pending or (name, input)
                raise Suspended
            return self.answers[name]

        return await self._once(answered)

    async def data(self, name: str, value: Any) -> None:
        async def shown() -> None:
            self.tool_data[name] = value

        await self._once(shown)

    async def write_data(self, name: str, value: Any, *, id: str | None, transient: bool) -> None:
        async def written() -> None:
            part = {"type": f"data-{name}", "data": value, "transient": transient, **({} if id is None else {"id": id})}
            self.data_parts.append(part)

        await self._once(written)

    async def start(self, agent: str, child: Mapping[str, Any], *, hidden: bool) -> tuple[str, str, str]:
        async def started() -> tuple[str, str, str]:
            self.started.append((agent, dict(child)))
            number = len(self.started)
            return f"child-{number}", f"version-{number}", f"run-{number}"

        begun: tuple[str, str, str] = await self._once(started)
        return begun

    async def follow(self, version: str, *, timeout: timedelta | None) -> Mapping[str, Any]:
        number = int(version.removeprefix("version-"))

        async def ended() -> Mapping[str, Any]:
            agent = self.started[number - 1][0]
            if agent not in self.answers:
                self.pending = self.pending or (agent, None)
                raise Suspended
            answer = self.answers[agent]
            result = {"status": "completed", "text": answer} if isinstance(answer, str) else dict(answer)
            return {"threadId": f"child-{number}", "runId": f"run-{number}", "text": "", **result}

        result: Mapping[str, Any] = await self._once(ended)
        return result

    def cancelled(self) -> bool:
        return self.stopping

    async def _once(self, effect: Callable[[], Awaitable[Any]]) -> Any:
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        if ordinal not in self._remembered:
            self._remembered[ordinal] = await effect()
        return self._remembered[ordinal]
