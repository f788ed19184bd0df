"""Suspending a tool call: it gives its worker back and waits, holding nothing, until somebody answers."""

from datetime import timedelta
from typing import Any

from pai.engine.claim import Claim
from pai.engine.closing import Chunk
from pai.engine.commit import commit_step
from pai.engine.runtime import Runtime
from pai.engine.transaction import StepLost, ThreadTransaction
from pai.fold.reserved import suspension
from pai.protocol.ids import new_id
from pai.protocol.times import iso
from pai.store.tables import EffectKind, EffectState, Journal, Run, Step


async def commit_suspension(
    runtime: Runtime,
    step: Step,
    *,
    ordinal: int,
    name: str,
    input: Any,
    again: bool,
    timeout: timedelta | None,
    shown: list[Chunk],
    worker: str | None,
) -> list[Claim]:
    """Suspends the call under its fence. The action is published only when this is committed.

    `shown`: what the call showed last and has not been written yet. `again`: the call waits there already.
    """
    suspension_id = new_id("susp")

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        message = await tx.message(held.message_id or "")
        if message is None:
            raise StepLost(held.step_id)
        tx.apply(message, *shown)
        if not again:
            call_id = held.tool_call_id or ""
            tx.apply(
                message,
                suspension(suspension_id, tool_call_id=call_id, name=name, input=input, created_at=iso(tx.now)),
            )
            tx.insert(
                Journal(
                    step_id=held.step_id,
                    ordinal=ordinal,
                    version=tx.version,
                    kind=EffectKind.suspend,
                    name=name,
                    state=EffectState.pending,
                    value={"input": input},
                )
            )
        tx.suspend(held, timeout=timeout)

    return await commit_step(runtime, step, worker, decide)
