"""How a step ends: under its fence, in one transaction that also decides what runs next.

A commit of an attempt that lost its step raises StepLost and changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, select

from pai.contract.run_context import AddedMessage
from pai.engine.advance import add_side_step, runs_outside
from pai.engine.claim import Claim
from pai.engine.closing import (
    Chunk,
    call_error,
    is_empty,
    message_finished,
    open_parts_ended,
    own_calls,
    unsettled_calls_failed,
)
from pai.engine.content import checked_metadata
from pai.engine.journal import shown
from pai.engine.mutation import transact
from pai.engine.patience import patiently
from pai.engine.plan import Phase, RunHook, SideHook
from pai.engine.records import usage as usage_of
from pai.engine.runtime import Runtime
from pai.engine.transaction import FIRST_REDISPATCH_MS, SEEN, StepLost, ThreadTransaction
from pai.fold import Fold
from pai.protocol.ids import new_id
from pai.protocol.messages import validate_messages
from pai.protocol.parts import tool_name
from pai.protocol.state import ErrorCode, RunStatus
from pai.protocol.text import clean
from pai.protocol.times import iso
from pai.protocol.tool_parts import is_settled
from pai.protocol.usage import UsageSummary, add_usage, has_usage
from pai.store.clock import FromNow
from pai.store.tables import Message, Run, RunTable, Step, StepState, StepTable, table_of

_RUN, _STEP = table_of(RunTable), table_of(StepTable)
_RUN_STATUS = (
    select(_STEP.c.state, _STEP.c.attempt, _RUN.c.status)
    .join(_RUN, _RUN.c.run_id == _STEP.c.run_id)
    .where(_STEP.c.step_id == bindparam("step_id"), _RUN.c.run_id == bindparam("run_id"))
)
STOP_LOOKS = 50
STOP_PAUSE = 0.1
"""How often, and how many seconds apart, a fenced step looks whether it was stopped."""


@dataclass(slots=True)
class ModelOutcome:
    """A model call that ended. `fold` holds the message with everything that was published, up to `sequence`.

    `client_tools`: those of the request, as the model saw them.
    """

    fold: Fold
    sequence: int
    reason: str
    usage: UsageSummary
    diagnostics: dict[str, Any]
    client_tools: Sequence[dict[str, Any]] = ()


@dataclass(slots=True)
class HookOutcome:
    """What hooks of a run added: messages, and changes of metadata by record (`thread`, `private_run` ...)."""

    messages: list[AddedMessage] = field(default_factory=list)
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)


async def commit_step(
    runtime: Runtime,
    step: Step,
    worker: str | None,
    decide: Callable[[ThreadTransaction, Step, Run], Awaitable[None]],
    known: Message | None = None,
    claim: Claim | None = None,
) -> list[Claim]:
    """A transaction under the fence of a running step. -> the created steps that `worker` goes on with.

    `known`: a message that only this step writes, so that it need not be read again. `claim`: what the worker read when
    it began, if the step has written nothing since.

    Raises StepLost when the step is not this attempt's any more.
    """

    async def held(tx: ThreadTransaction) -> None:
        if known is not None:
            tx.know(known)
        held_step = await tx.held_step(step.step_id, attempt=step.attempt)
        run = await tx.run(step.run_id)
        if run is None:
            raise StepLost(step.step_id)
        await decide(tx, held_step, run)

    runtime.faults.hit(f"{step.kind}.before_commit")
    message_id = step.message_id if known is None else None
    basis = None if claim is None else claim.basis
    done = await transact(
        runtime, step.version, held, worker=worker, run_id=step.run_id, message_id=message_id, basis=basis
    )
    if done is None:
        raise StepLost(step.step_id)
    _, tx, publication = done
    published = runtime.announce(publication)
    if not tx.claimed:
        await published
        return []
    live, history = await tx.live_steps(), None
    if claim is not None and claim.history is not None and tx.thread.revision == claim.thread.revision + 1:
        history = [message for message in tx.after(claim.history) if message.visibility in SEEN]
    return [
        Claim(
            claimed,
            tx.thread,
            tx.known_run(claimed.run_id),
            tx.known_message(claimed.message_id),
            history=history,
            steps=live,
            published=published,
        )
        for claimed in tx.claimed
    ]


async def commit_model(
    runtime: Runtime,
    claim: Claim,
    outcome: ModelOutcome,
    *,
    worker: str | None,
    hooks: HookOutcome | None = None,
) -> list[Claim]:
    """Ends a model step. -> the steps that this worker goes on with."""

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        row = await _message(tx, held)
        tx.adopt(row, outcome.fold, sequence=outcome.sequence)
        tx.end_step(held, StepState.done, finish_reason=outcome.reason)
        _count_usage(tx, run, outcome.usage)
        if hooks is not None:
            _apply_hooks(tx, run, hooks)
        tx.update(run, turn_reason=outcome.reason)
        if outcome.client_tools:
            tx.update(run, seen_tools={**run.seen_tools, **{tool["name"]: tool for tool in outcome.client_tools}})
        _refuse_calls(tx, run, row, outcome.reason)
        facts: dict[str, Any] = {"diagnostics": outcome.diagnostics}
        if has_usage(outcome.usage):
            facts["usage"] = outcome.usage.wire()
        tx.apply(row, {"type": "message-metadata", "messageMetadata": {"pai": facts}})
        if tx.agent.reasoning_summaries is not None and _has_reasoning(tx.fold(row).message["parts"]):
            add_side_step(tx, SideHook.reasoning_summary, run_id=run.run_id, message_id=row.message_id)

    return await commit_step(runtime, claim.step, worker, decide, known=claim.own_message, claim=claim)


def _has_reasoning(parts: Sequence[dict[str, Any]]) -> bool:
    return any(part["type"] == "reasoning" and part.get("id") and part["text"].strip() for part in parts)


def _refuse_calls(tx: ThreadTransaction, run: Run, message: Message, reason: str) -> None:
    """Settles the calls that must not be executed: truncated ones, and those of tools nobody knows."""
    for part in own_calls(tx.fold(message).message["parts"]):
        if is_settled(part):
            continue
        name, call_id = tool_name(part), part["toolCallId"]
        if part["state"] == "input-streaming" or reason == "length":
            text = "The call was cut off before its input was complete. It was not executed."
            if part["state"] == "input-streaming":
                tx.apply(message, *unsettled_calls_failed([part], ErrorCode.input_invalid, now=tx.now, text=text))
            else:
                tx.apply(message, *call_error(call_id, ErrorCode.input_invalid, text=text))
        elif name not in tx.agent.tools and not runs_outside(tx.agent, run, name):
            tx.apply(message, *call_error(call_id, ErrorCode.unknown_tool, text=f"There is no tool named {name}."))


async def fail_model(
    runtime: Runtime,
    step: Step,
    *,
    fold: Fold,
    sequence: int,
    code: ErrorCode | str,
    message: str,
    usage: UsageSummary,
    worker: str | None,
) -> list[Claim]:
    """Ends a model step and its run with an error; what was streamed stays."""

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        row = await _message(tx, held)
        tx.adopt(row, fold, sequence=sequence)
        tx.end_step(held, StepState.failed, error={"code": str(code), "message": message})
        _count_usage(tx, run, usage)
        await close_failed(tx, row)
        tx.update(run, error={"code": str(code), "message": message})

    return await commit_step(runtime, step, worker, decide)


async def close_failed(tx: ThreadTransaction, message: Message) -> None:
    """Closes an open message whose step failed for good; an empty one is removed."""
    fold = tx.fold(message)
    if is_empty(fold.message["parts"]):
        await tx.remove_message(message)
        return
    tx.apply(message, *open_parts_ended(fold.folding()))
    tx.apply(message, *unsettled_calls_failed(fold.message["parts"], ErrorCode.interrupted, now=tx.now))
    tx.apply(message, *message_finished("error", now=tx.now))
    tx.update(message, open=False)


async def retry_model(
    runtime: Runtime,
    step: Step,
    *,
    fold: Fold,
    sequence: int,
    delay: timedelta,
    usage: UsageSummary,
    counts: bool,
) -> None:
    """Puts a model step back for a new attempt: what it streamed is thrown away, its usage is counted.

    `counts`: whether this spends one of the step's tries.
    """

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        row = await _message(tx, held)
        tx.adopt(row, fold, sequence=sequence)
        _count_usage(tx, run, usage)
        reset_step(tx, row)
        put_back(tx, held, tries=held.tries + (1 if counts else 0), delay=delay)

    await commit_step(runtime, step, None, decide)


def reset_step(tx: ThreadTransaction, message: Message) -> None:
    """Empties the message of a model step that starts again, for everybody who saw it."""
    if tx.fold(message).message["parts"]:
        tx.apply(message, {"type": "reset-step"})


def put_back(tx: ThreadTransaction, step: Step, *, tries: int, delay: timedelta = timedelta()) -> None:
    """Running to pending, under a raised fence; dispatched at once, or by the sweep when the delay has passed."""
    delay_ms = round(delay.total_seconds() * 1000)
    tx.signal_stop(step)
    tx.update(
        step,
        state=StepState.pending,
        attempt=step.attempt + 1,
        tries=tries,
        lease_owner=None,
        lease_expires_at=None,
        available_at=FromNow(delay_ms),
        dispatch_at=FromNow(delay_ms or FIRST_REDISPATCH_MS),
        dispatches=0,
    )
    if not delay_ms:
        tx.dispatch(step)


async def commit_tool(
    runtime: Runtime,
    step: Step,
    chunks: list[Chunk],
    *,
    failed: bool,
    worker: str | None,
    claim: Claim | None = None,
) -> list[Claim]:
    """Ends a tool step with the chunks that settle its call. -> the steps that this worker goes on with.

    `claim`: see `commit_step`.
    """

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        tx.apply(await _message(tx, held), *chunks)
        tx.end_step(held, StepState.failed if failed else StepState.done)

    return await commit_step(runtime, step, worker, decide, claim=claim)


async def write_tool(runtime: Runtime, step: Step, chunks: list[Chunk], *, ordinal: int) -> None:
    """Publishes and stores what a tool call shows while it runs: preliminary outputs, tool data, data parts.

    `ordinal`: the latest effect among them, 0 when there is none; on re-entry it is not shown again.
    """

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        tx.apply(await _message(tx, held), *chunks)
        if ordinal:
            tx.insert(shown(held, ordinal))

    await patiently(lambda: commit_step(runtime, step, None, decide))


async def retry_tool(runtime: Runtime, step: Step, *, delay: timedelta, shown: list[Chunk]) -> None:
    """Puts a call that may run twice back, for after `delay`. `shown`: what it showed last, not written yet."""

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        tx.apply(await _message(tx, held), *shown)
        put_back(tx, held, tries=held.tries + 1, delay=delay)

    await commit_step(runtime, step, None, decide)


async def commit_hook(
    runtime: Runtime, step: Step, outcome: HookOutcome, *, error: str | None, worker: str | None
) -> list[Claim]:
    """Ends a hook step. A failed `on_run_start` fails the run, a failed `on_run_finish` changes nothing.

    Raises ValidationFailed when what the hook added cannot be stored.
    """

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        _apply_hooks(tx, run, outcome)
        tx.end_step(held, StepState.done if error is None else StepState.failed)
        if held.name == RunHook.on_run_start:
            tx.update(run, phase=Phase.model)
            if error is not None:
                tx.update(run, error={"code": ErrorCode.failed.value, "message": error})

    return await commit_step(runtime, step, worker, decide)


async def commit_texts(
    runtime: Runtime,
    step: Step,
    *,
    title: str | None,
    chunks: list[Chunk],
    usage: UsageSummary,
    worker: str | None,
) -> list[Claim]:
    """Ends a step that made a title or summaries. A title that a person gave stays."""

    async def decide(tx: ThreadTransaction, held: Step, run: Run) -> None:
        tx.end_step(held, StepState.done)
        _count_usage(tx, run, usage)
        if title is not None and (tx.thread.title is None or tx.thread.title["source"] == "generated"):
            tx.update(tx.thread, title={"value": title, "source": "generated", "updatedAt": iso(tx.now)})
        message = None if held.message_id is None else await tx.message(held.message_id)
        if message is not None and chunks:
            tx.apply(message, *chunks)

    return await commit_step(runtime, step, worker, decide)


def _apply_hooks(tx: ThreadTransaction, run: Run, outcome: HookOutcome) -> None:
    """Raises ValidationFailed for what no message or record can hold."""
    for added in outcome.messages:
        message_id, parts = new_id("msg"), clean([dict(part) for part in added.parts])
        validate_messages([{"id": message_id, "role": added.role, "parts": parts}])
        tx.add_message(
            message_id,
            run_id=run.run_id,
            role=added.role,
            facts={
                "producer": "lifecycle",
                "runId": run.run_id,
                "relation": added.relation,
                "status": "committed",
            },
            meta=checked_metadata(tx.agent.message_metadata, dict(added.metadata or {}), at="metadata"),
            parts=parts,
            visibility=added.visibility,
        )
    changes, agent = outcome.metadata, tx.agent
    for name, record, column, schema in (
        ("thread", tx.thread, "meta", agent.thread_metadata),
        ("private_thread", tx.thread, "private_meta", agent.private_thread_metadata),
        ("run", run, "meta", agent.run_metadata),
        ("private_run", run, "private_meta", agent.private_run_metadata),
    ):
        if name in changes:
            merged = {**getattr(record, column), **changes[name]}
            tx.update(record, **{column: checked_metadata(schema, merged, at=name)})


async def add_usage_of_stopped(runtime: Runtime, step: Step, usage: UsageSummary, *, released: bool) -> None:
    """Counts what a model call cost that was aborted by a stop, or `released` by a worker that ends.

    Whoever lost its step in another way was taken for dead, and changes nothing any more.
    """
    if not has_usage(usage) or not (released or await _is_cancelled(runtime, step)):
        return

    async def decide(tx: ThreadTransaction) -> None:
        run = await tx.run(step.run_id)
        if run is not None:
            _count_usage(tx, run, usage)

    done = await transact(runtime, step.version, decide)
    if done is not None:
        await runtime.announce(done[2])


async def _is_cancelled(runtime: Runtime, step: Step) -> bool:
    """Whether the step's run was stopped.

    Fences go up before the transaction that stops, so a step that was fenced may still be held; then the answer is
    waited for. A take-over that died in between leaves the step to its lease.
    """
    for _ in range(STOP_LOOKS):
        async with runtime.store.autocommit() as connection:
            row = (await connection.execute(_RUN_STATUS, {"step_id": step.step_id, "run_id": step.run_id})).first()
        if row is None:
            return False
        if row.state != StepState.running or row.attempt != step.attempt:
            return bool(row.status == RunStatus.cancelled)
        await asyncio.sleep(STOP_PAUSE)
    return False


def _count_usage(tx: ThreadTransaction, run: Run, usage: UsageSummary) -> None:
    if has_usage(usage):
        tx.update(run, usage=add_usage(usage_of(run.usage), usage).wire())
        tx.update(tx.thread, usage=add_usage(usage_of(tx.thread.usage), usage).wire())


async def _message(tx: ThreadTransaction, step: Step) -> Message:
    message = await tx.message(step.message_id or "")
    if message is None:
        raise StepLost(step.step_id)
    return message
