"""Steps whose worker is gone, or gives them up: back to pending for another worker, or settled as interrupted."""

import logging
from collections.abc import Awaitable, Callable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.advance import advance
from pai.engine.closing import call_error, call_failed
from pai.engine.commit import close_failed, put_back, reset_step
from pai.engine.locked import lock_by_version
from pai.engine.log_names import named
from pai.engine.mutation import transact
from pai.engine.plan import Phase
from pai.engine.publication import Publication
from pai.engine.relatives import stop_children
from pai.engine.runtime import Runtime
from pai.engine.takeover import Fenced, Which, adopt_tail, start_new_epoch_if_blind, take_over
from pai.engine.transaction import ThreadTransaction
from pai.protocol.state import ErrorCode
from pai.store.clock import now_ms
from pai.store.tables import Step, StepKind, StepState, Thread

HOOK_TRIES = 3

logger = logging.getLogger(__name__)

Choose = Callable[[AsyncConnection], Awaitable[Which]]


async def expire(runtime: Runtime, *, version: str) -> int:
    """Takes over the steps of a thread whose lease ran out. -> how many there were."""

    async def lapsed(connection: AsyncConnection) -> Which:
        clock: int = (await connection.execute(select(now_ms()))).scalar_one()
        return lambda step: step.lease_expires_at is not None and step.lease_expires_at < clock

    taken = await _give_back(runtime, version=version, choose=lapsed)
    for name in taken:
        logger.warning("A step was taken over, its lease had run out: %s", name)
    return len(taken)


async def time_out(runtime: Runtime, *, version: str, step_id: str) -> None:
    """Ends a suspended call that nobody answered in time."""

    async def decide(tx: ThreadTransaction) -> bool:
        step = next((step for step in await tx.live_steps() if step.step_id == step_id), None)
        message = None if step is None else await tx.message(step.message_id or "")
        if step is None or message is None or step.state != StepState.suspended:
            return False
        clock: int = (await tx.connection.execute(select(now_ms()))).scalar_one()
        if step.dispatch_at is None or step.dispatch_at > clock:
            return False
        parts = tx.fold(message).message["parts"]
        text = "Nobody answered in time."
        tx.apply(message, *call_failed(parts, step.tool_call_id or "", ErrorCode.timeout, now=tx.now, text=text))
        await stop_children(tx, step_ids=[step.step_id])
        tx.end_step(step, StepState.failed)
        return True

    done = await transact(runtime, version, decide)
    if done is not None:
        await runtime.announce(done[2])


async def release(runtime: Runtime, *, version: str, steps: dict[str, int]) -> None:
    """Gives back the steps (id -> attempt) of a worker that stops. They are not running any more."""

    async def these(connection: AsyncConnection) -> Which:
        return lambda step: steps.get(step.step_id) == step.attempt

    await _give_back(runtime, version=version, choose=these, spent=False)


async def _give_back(runtime: Runtime, *, version: str, choose: Choose, spent: bool = True) -> list[str]:
    """-> the steps that are not held any more, as log lines name them."""
    taken: list[str] = []

    async def find(connection: AsyncConnection) -> Thread | None:
        return await lock_by_version(connection, version=version)

    async def chosen(connection: AsyncConnection, thread: Thread) -> Which:
        return await choose(connection)

    async def decide(tx: ThreadTransaction, fenced: Fenced) -> Publication | None:
        which = await choose(tx.connection)
        steps = [step for step in await tx.live_steps() if step.state == StepState.running and which(step)]
        # Steps that lapsed only now are left to the next round: they are not fenced.
        steps = [step for step in steps if fenced.holds(step)]
        if not steps:
            return None
        taken[:] = [named(tx.thread, step) for step in steps]
        start_new_epoch_if_blind(tx, fenced)
        for step in steps:
            await _settle(tx, step, fenced, spent=spent)
        await advance(tx)
        return await tx.flush()

    publication = await take_over(runtime, find, chosen, decide)
    if publication is None:
        return []
    await runtime.announce(publication)
    return taken


async def _settle(tx: ThreadTransaction, step: Step, fenced: Fenced, *, spent: bool) -> None:
    tries = step.tries + (1 if spent else 0)
    match StepKind(step.kind):
        case StepKind.model:
            await _settle_model(tx, step, fenced, tries=tries)
        case StepKind.tool:
            await _settle_tool(tx, step, tries=tries)
        case StepKind.hook:
            await _settle_hook(tx, step, tries=tries)


async def _settle_model(tx: ThreadTransaction, step: Step, fenced: Fenced, *, tries: int) -> None:
    message = await tx.message(step.message_id or "")
    run = await tx.run(step.run_id)
    if message is None or run is None:
        tx.end_step(step, StepState.cancelled)
        return
    adopt_tail(tx, message, fenced)
    if tries < tx.runtime.settings.model_tries:
        reset_step(tx, message)
        put_back(tx, step, tries=tries)
        return
    error = {
        "code": ErrorCode.interrupted.value,
        "message": f"The worker died {tries} times while it called the model.",
    }
    tx.end_step(step, StepState.failed, error=error)
    await close_failed(tx, message)
    tx.update(run, error=error)


async def _settle_tool(tx: ThreadTransaction, step: Step, *, tries: int) -> None:
    message = await tx.message(step.message_id or "")
    if message is None:
        tx.end_step(step, StepState.cancelled)
    elif tries < step.max_attempts and step.max_attempts > 1:
        put_back(tx, step, tries=tries)
    else:
        tx.apply(message, *call_error(step.tool_call_id or "", ErrorCode.interrupted))
        tx.end_step(step, StepState.failed, error={"code": ErrorCode.interrupted.value})


async def _settle_hook(tx: ThreadTransaction, step: Step, *, tries: int) -> None:
    if tries < HOOK_TRIES:
        put_back(tx, step, tries=tries)
        return
    tx.end_step(step, StepState.failed)
    run = await tx.run(step.run_id)
    if run is not None and run.phase == Phase.start:
        tx.update(
            run,
            phase=Phase.model,
            error={"code": ErrorCode.interrupted.value, "message": f"The worker died {tries} times in {step.name}."},
        )
