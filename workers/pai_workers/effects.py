"""What a worker does for a tool call while it runs: what it shows, what it remembers, where it waits.

Effects are numbered in the order in which the tool asks for them. Those below the journal's high-water mark were done
by an earlier entry of the same call and are answered from the journal.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from pai.contract import ChangedSinceSuspension, OutcomeUnknown, Suspended, ThreadsTooDeep
from pai.engine import journal
from pai.engine.children import child_request, start_child
from pai.engine.claim import Claim
from pai.engine.closing import Chunk
from pai.engine.commit import write_tool
from pai.engine.content import check_size
from pai.engine.patience import patiently
from pai.engine.receipts import request_hash
from pai.engine.relatives import ParentCall
from pai.fold.reserved import tool_data
from pai.log.entries import chunk_field
from pai.log.live_channel import LiveChannel, Reopening
from pai.protocol.ids import new_id
from pai.protocol.json import dumps, same_json
from pai.store.tables import EffectKind, EffectState, Journal

if TYPE_CHECKING:
    from pai_workers.runner import Runner

SHOWN_EVERY = timedelta(milliseconds=250)
"""Repeated values of one call are joined, the latest wins, so that a fast tool does not fill the database."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The suspension in which the call is to wait; `again` when it waits there already."""

    ordinal: int
    name: str
    input: Any
    again: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """The child that the call is to wait for; `again` when it does already."""

    ordinal: int
    child_version: str
    timeout: timedelta | None
    again: bool = False


class CallEffects:
    """The effects of one entry of a call. `written`: whether it has changed the thread."""

    def __init__(self, runner: "Runner", claim: Claim, done: journal.Effects) -> None:
        self._runner = runner
        self._claim = claim
        self._step = claim.step
        self._call_id = claim.step.tool_call_id or ""
        self._done = done
        self._high_water = done.high_water
        self._ordinal = 0
        self._waiting: dict[str, Chunk] = {}
        self._shown_ordinal = 0
        self._written_at = 0.0
        self._writer: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._channel: LiveChannel | None = None
        self._cancelled = False
        self.written = False
        self.asked: Asked | Followed | None = None

    async def preliminary(self, output: Any) -> None:
        """Shows an output that is not the last one."""
        chunk = {"type": "tool-output-available", "toolCallId": self._call_id, "output": output, "preliminary": True}
        await self._show("output", chunk)

    async def data(self, name: str, value: Any) -> None:
        check_size(self._runner.runtime, value, at=name)
        if not self._shown_before(name):
            self._shown_ordinal = self._ordinal
            await self._show(f"data {name}", tool_data(self._call_id, name, value))

    async def write_data(self, name: str, value: Any, *, id: str | None, transient: bool) -> None:
        check_size(self._runner.runtime, value, at=name)
        if self._shown_before(name):
            return
        chunk: Chunk = {"type": f"data-{name}", "data": value}
        if id is not None:
            chunk["id"] = id
        if transient:
            self._publish({**chunk, "transient": True})
            await asyncio.sleep(0)
            return
        self._shown_ordinal = self._ordinal
        self._waiting[f"part {self._ordinal}"] = chunk
        await self._written()

    async def step(self, name: str, call: Callable[[], Awaitable[Any]], *, retry_safe: bool) -> Any:
        ordinal = self._next()
        row = self._recorded(ordinal, EffectKind.step, name)
        if row is not None and row.state == EffectState.done:
            return row.value
        if row is not None and not retry_safe:
            raise OutcomeUnknown(name)
        runtime = self._runner.runtime
        if row is None:
            await patiently(lambda: journal.start_effect(runtime, self._step, ordinal=ordinal, name=name))
        runtime.faults.hit("effect.before_call")
        value = await call()
        runtime.faults.hit("effect.before_done")
        await patiently(lambda: journal.finish_effect(runtime, self._step, ordinal=ordinal, value=value))
        return value

    async def suspend(self, name: str, input: Any) -> Any:
        check_size(self._runner.runtime, input, at="input")
        ordinal = self._next()
        row = self._recorded(ordinal, EffectKind.suspend, name)
        if row is None:
            self._wait(Asked(ordinal, name, input))
        if not same_json(row.value["input"], input):
            raise ChangedSinceSuspension(name)
        if row.state == EffectState.resumed:
            return row.value["payload"]
        return self._wait(Asked(ordinal, name, input, again=True))

    async def start(self, agent: str, child: Mapping[str, Any], *, hidden: bool) -> tuple[str, str, str]:
        ordinal = self._next()
        row = self._recorded(ordinal, EffectKind.start, agent)
        runtime, claim = self._runner.runtime, self._claim
        asked = request_hash(agent, [child, hidden])
        if row is not None and row.value["request"] != asked:
            raise ChangedSinceSuspension(agent)
        if row is not None and row.state == EffectState.done:
            return row.value["threadId"], row.value["version"], row.value["runId"]
        declared = runtime.registry.get(agent)
        limit = runtime.settings.max_thread_depth
        if claim.thread.depth >= limit:
            raise ThreadsTooDeep(limit)
        if row is None:
            value: dict[str, Any] = {"threadId": new_id("thread"), "version": new_id("th"), "messageId": new_id("msg")}
            value |= {"request": asked, "hidden": hidden}
            request = child_request(value["messageId"], child)
            kind = EffectKind.start
            await patiently(
                lambda: journal.start_effect(runtime, self._step, ordinal=ordinal, name=agent, kind=kind, value=value)
            )
        else:
            value = row.value
            request = child_request(value["messageId"], child)
        call = ParentCall(
            thread=claim.thread,
            run_id=self._step.run_id,
            step_id=self._step.step_id,
            attempt=self._step.attempt,
            version=value["version"],
        )
        thread_id: str = value["threadId"]
        runtime.faults.hit("child.before_send")
        run_id = await patiently(lambda: start_child(runtime, call, declared, thread_id, request, hidden=hidden))
        runtime.faults.hit("child.before_done")
        done = {**value, "runId": run_id}
        await patiently(lambda: journal.finish_effect(runtime, self._step, ordinal=ordinal, value=done))
        return thread_id, value["version"], run_id

    async def follow(self, version: str, *, timeout: timedelta | None) -> Mapping[str, Any]:
        ordinal = self._next()
        # By the child, because a call may follow it twice, and children that it follows at once in any order.
        followed = (row for row in self._done.rows.values() if row.kind == EffectKind.follow and row.name == version)
        row = next(followed, None)
        if row is None:
            self._recorded(ordinal, EffectKind.follow, version)
            self._wait(Followed(ordinal, version, timeout))
        if row.state == EffectState.resumed:
            result: Mapping[str, Any] = row.value["payload"]
            return result
        return self._wait(Followed(row.ordinal, version, timeout, again=True))

    def _wait(self, asked: Asked | Followed) -> NoReturn:
        # Of several that a tool asks at once, one is answered after the other.
        self.asked = self.asked or asked
        raise Suspended

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """The call was cut off: nothing more is shown."""
        self._cancelled = True
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
        if self._channel is not None:
            self._channel.close()

    async def settle(self) -> list[Chunk]:
        """Before the result: what was shown last and has not been written. Nothing comes after it."""
        self._waiting.pop("output", None)
        chunks, self._waiting = list(self._waiting.values()), {}
        self._hurry.set()
        if self._writer is not None:
            await self._writer
        if self._channel is not None:
            with contextlib.suppress(ChannelLost, TimeoutError):
                async with asyncio.timeout(self._runner.runtime.settings.publish_timeout.total_seconds()):
                    await self._channel.flush()
        return chunks

    def _next(self) -> int:
        self._ordinal += 1
        return self._ordinal

    def _shown_before(self, name: str) -> bool:
        """Whether an earlier entry showed this. Raises ChangedSinceSuspension when it did something else here."""
        row = self._done.rows.get(self._next())
        if row is not None and row.kind != EffectKind.shown:
            raise ChangedSinceSuspension(name)
        return self._ordinal <= self._high_water

    def _recorded(self, ordinal: int, kind: EffectKind, name: str) -> Journal | None:
        """The row of this effect; None when it was not done yet. Raises ChangedSinceSuspension for another one."""
        row = self._done.rows.get(ordinal)
        if row is None and ordinal > self._high_water:
            return None
        if row is None or row.kind != kind or row.name != name:
            raise ChangedSinceSuspension(name)
        return row

    async def _show(self, key: str, chunk: Chunk) -> None:
        self._waiting[key] = chunk
        if self._writer is not None and self._writer.done():
            self._writer.result()
            self._writer = None
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_later())
        await asyncio.sleep(0)  # the loop is also that of other steps, and of this one's timeout

    async def _write_later(self) -> None:
        rest = self._written_at + SHOWN_EVERY.total_seconds() - time.monotonic()
        if rest > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), rest)
        await self._flush()

    async def _written(self) -> None:
        """Writes what waits now, after what is being written."""
        if self._writer is not None:
            # The tool may be cut off here; what is being written is not.
            await asyncio.shield(self._writer)
            self._writer = None
        await self._flush()

    async def _flush(self) -> None:
        chunks, self._waiting = list(self._waiting.values()), {}
        ordinal, self._shown_ordinal = self._shown_ordinal, 0
        if chunks:
            self.written = True
            await write_tool(self._runner.runtime, self._step, chunks, ordinal=ordinal)
        self._written_at = time.monotonic()

    def _publish(self, chunk: Chunk) -> None:
        """Shows a chunk to whoever watches now; it is stored nowhere."""
        if self._channel is None:
            self._channel = self._runner.publisher.channel(
                self._step.version,
                epoch=self._claim.thread.log_epoch,
                number=self._step.number,
                attempt=self._step.attempt,
                on_lost=self._lost,
                after=self._claim.published,
            )
        if not self._channel.has_room:
            return  # nobody can take it in time
        with contextlib.suppress(ChannelLost):
            self._channel.write(chunk_field(self._step.run_id, self._claim.own_message.message_id), dumps(chunk))

    async def _lost(self, channel: LiveChannel) -> Reopening:
        """The log lost the thread. Transient data is not worth a new epoch: whoever publishes next opens one."""
        raise ChannelLost


class ChannelLost(Exception):
    """Transient data that could not be shown."""
