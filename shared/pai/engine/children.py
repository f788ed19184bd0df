"""Threads that a tool starts: created once, and followed by a call that holds nothing meanwhile."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from pai.contract import Agent
from pai.engine.claim import Claim
from pai.engine.closing import Chunk
from pai.engine.commit import commit_step
from pai.engine.relatives import ChildEnded, ParentCall, take_ended
from pai.engine.runtime import Caller, Runtime
from pai.engine.send import Origin, send
from pai.engine.transaction import StepLost, ThreadTransaction
from pai.protocol.errors import ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.requests import SendRequest
from pai.store.tables import EffectKind, EffectState, Journal, Run, Step


def child_request(message_id: str, child: Mapping[str, Any]) -> SendRequest:
    """Raises ValidationFailed."""
    try:
        return SendRequest.read({**child, "messageId": message_id})
    except ValidationError as error:
        raise ValidationFailed.of(error) from None


async def start_child(
    runtime: Runtime, call: ParentCall, agent: Agent, thread_id: str, request: SendRequest, *, hidden: bool
) -> str:
    """Creates the thread with its first run, once for its message id. -> the run's id, also when it was deleted since.

    Raises StepLost when the parent was stopped or deleted meanwhile, and what a send raises.
    """
    caller = Caller(replace(Identity.of_owner(call.thread.owner), trusted=True), agent)
    try:
        reply = await send(runtime, caller, thread_id, request, origin=Origin(hidden=hidden, parent=call))
    except ChildEnded as ended:
        return ended.run_id
    if reply.result.run is None:
        raise RuntimeError("A send without a run.")
    return reply.result.run.run_id


async def commit_follow(
    runtime: Runtime,
    step: Step,
    *,
    ordinal: int,
    child_version: str,
    again: bool,
    timeout: timedelta | None,
    shown: list[Chunk],
    worker: str | None,
) -> list[Claim]:
    """Suspends the call until the child's run has ended; when it has already, the call is entered again at once.

    This suspension is nobody's action: no part of the message tells of it, and the run waits without one.
    """

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        message = await tx.message(held.message_id or "")
        if message is None:
            raise StepLost(held.step_id)
        tx.apply(message, *shown)
        result = await take_ended(tx, child_version=child_version)
        state = EffectState.pending if result is None else EffectState.resumed
        value = None if result is None else {"payload": result}
        row = Journal(
            step_id=held.step_id,
            ordinal=ordinal,
            version=tx.version,
            kind=EffectKind.follow,
            name=child_version,
            state=state,
            value=value,
        )
        if not again:
            tx.insert(row)
        elif result is not None:
            tx.update(row, state=state, value=value)
        tx.suspend(held, timeout=timeout)
        if result is not None:
            tx.put_to_work(held)

    return await commit_step(runtime, step, worker, decide)
