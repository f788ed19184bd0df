"""Commands: typed calls on a thread, executed where they arrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.contract import CommandContext
from pai.engine import receipts
from pai.engine.metadata import update_metadata
from pai.engine.mutation import lock_for, recorded_result
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.send import send
from pai.engine.snapshot import read_state
from pai.engine.threads import rename
from pai.protocol.errors import NotFound, ValidationFailed
from pai.protocol.requests import CommandRequest, CommandResult, RenameRequest, SendQueueOptions, SendRequest
from pai.protocol.times import now_ms
from pai.protocol.wire import WireModel
from pai.store.tables import ReceiptTable, table_of

TRequest = TypeVar("TRequest", bound=WireModel)


@dataclass(frozen=True, slots=True)
class _Access:
    """The thread of a command, acting for its caller."""

    runtime: Runtime
    caller: Caller
    thread_id: str

    async def state(self) -> Mapping[str, Any]:
        state = await read_state(self.runtime, self.caller, self.thread_id)
        if state is None:
            raise NotFound("thread")
        return state.wire()

    async def rename(self, title: str) -> None:
        await rename(self.runtime, self.caller, self.thread_id, _read(RenameRequest, {"title": title}))

    async def update_metadata(self, changes: Mapping[str, Any], *, private: Mapping[str, Any] | None = None) -> None:
        await update_metadata(self.runtime, self.caller, self.thread_id, changes, private=private)

    async def send(self, content: str | Sequence[Mapping[str, Any]], *, queue: SendQueueOptions | None = None) -> str:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(part) for part in content]
        body: dict[str, Any] = {"message": {"parts": parts}}
        if queue is not None:
            body["queue"] = queue.wire()
        reply = await send(self.runtime, self.caller, self.thread_id, _read(SendRequest, body))
        run = reply.result.run
        if run is None:
            raise RuntimeError("A send without a run.")
        return run.run_id


def _read(kind: type[TRequest], body: dict[str, Any]) -> TRequest:
    """What a command asks for is checked as what comes from outside, where its texts often come from."""
    try:
        return kind.read(body)
    except ValidationError as error:
        raise ValidationFailed.of(error) from None


async def execute_command(
    runtime: Runtime,
    caller: Caller,
    thread_id: str,
    name: str,
    request: CommandRequest,
    *,
    key: str | None = None,
) -> Reply[CommandResult]:
    """Calls a declared command. The same key gets the recorded output, once the first call has ended.

    Raises NotFound (thread, command), ValidationFailed, IdempotencyConflict, and what the command raises.
    """
    command = caller.agent.commands.get(name)
    if command is None:
        raise NotFound("command")
    content = receipts.request_hash(f"command {thread_id} {name}", request.wire())

    async def before(connection: AsyncConnection) -> tuple[str, dict[str, Any] | None]:
        thread = await lock_for(connection, caller, thread_id)
        if thread is None:
            raise NotFound("thread")
        return thread.version, await recorded_result(connection, thread, key=key, request_hash=content)

    version, recorded = await runtime.store.run_write(before)
    if recorded is not None:
        return Reply(CommandResult.read(recorded), replayed=True)
    context = CommandContext(
        thread_id=thread_id,
        agent=caller.agent.name,
        identity=caller.acts_for,
        client_data=None if request.client_data is None else caller.agent.read_client_data(request.client_data),
        thread=_Access(runtime, caller, thread_id),
    )
    result = CommandResult(output=await command.call(context, request.input))
    if key is not None:
        await _record(runtime, version, key, content, result)
    return Reply(result)


async def _record(runtime: Runtime, version: str, key: str, content: str, result: CommandResult) -> None:
    row = {
        "version": version,
        "kind": receipts.KEY,
        "request_id": key,
        "request_hash": content,
        "result": result.wire(),
        "created_at": now_ms(),
    }

    async def work(connection: AsyncConnection) -> None:
        if await receipts.find_receipt(connection, version=version, kind=receipts.KEY, request_id=key) is None:
            await connection.execute(table_of(ReceiptTable).insert(), row)

    await runtime.store.run_write(work)
