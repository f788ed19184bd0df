"""The tool step: one call of a server tool, validated, timed, and settled with exactly one result."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pai.contract import (
    ChangedSinceSuspension,
    OutcomeUnknown,
    Suspended,
    ThreadsTooDeep,
    Tool,
    ToolContext,
    ToolError,
    ToolInputInvalid,
    ToolOutputInvalid,
    contained,
    in_thread,
)
from pai.engine.children import commit_follow
from pai.engine.claim import Claim
from pai.engine.closing import TEXTS, Chunk, call_error
from pai.engine.commit import commit_tool, retry_tool
from pai.engine.journal import Effects
from pai.engine.log_names import named, shortened
from pai.engine.suspend import commit_suspension
from pai.engine.transaction import StepLost
from pai.fold.partial_json import ABSENT
from pai.log.errors import LogError
from pai.protocol.errors import Unavailable
from pai.protocol.identity import Identity
from pai.protocol.json import dumps
from pai.protocol.state import ErrorCode
from pai.protocol.text import clean, clean_text
from pai.store.tables import Step
from pai_workers.effects import CallEffects, Followed
from pai_workers.metrics import Outcome
from pai_workers.retry import backoff

if TYPE_CHECKING:
    from pai_workers.runner import Runner

LONGEST_TEXT = 10_000
LONGEST_CODE = 200
"""Characters of a `ToolError` that are kept: it is read by models and people."""

logger = logging.getLogger(__name__)


async def run_tool(runner: "Runner", claim: Claim) -> list[Claim]:
    """-> the steps to go on with. Raises StepLost when the call was taken over, Unavailable without SQL."""
    step = claim.step
    tool = runner.runtime.registry.get(step.agent).tools.get(step.name or "")
    call_id = step.tool_call_id or ""
    if tool is None:
        chunks, failed = call_error(call_id, ErrorCode.unknown_tool, text=f"There is no tool named {step.name}."), True
        runner.ends_as(Outcome.failed)
        return await runner.ending(
            step, commit_tool, runner.runtime, step, chunks, failed=failed, worker=runner.goes_on_as
        )
    effects = CallEffects(runner, claim, Effects({row.ordinal: row for row in claim.journal}))
    try:
        return await _ended(runner, claim, tool, effects)
    finally:
        effects.close()


async def _ended(runner: "Runner", claim: Claim, tool: Tool, effects: CallEffects) -> list[Claim]:
    """The call and its commit, whether it went well or not."""
    step, call_id = claim.step, claim.step.tool_call_id or ""
    try:
        output = await _call(runner, claim, tool, effects)
        chunks, failed = _settled(runner, call_id, output), False
    except Suspended:
        return await _suspended(runner, step, tool, effects)
    except asyncio.CancelledError:
        effects.cancel()
        raise
    except (StepLost, LogError, Unavailable):
        raise
    except Exception as error:
        if tool.retry_safe and step.tries + 1 < step.max_attempts and _may_pass(error):
            logger.warning("A tool failed and is tried again: %s", named(claim.thread, step), exc_info=error)
            runner.ends_as(Outcome.retried)
            shown = await effects.settle()
            await runner.ending(step, retry_tool, runner.runtime, step, delay=backoff(step.tries), shown=shown)
            return []
        _log(claim, error)
        limit = runner.runtime.settings.output_max_bytes
        chunks, failed = _error(tool, call_id, error, limit=limit), True
        runner.ends_as(Outcome.failed)
    chunks = [*await effects.settle(), *chunks]
    return await runner.ending(
        step,
        commit_tool,
        runner.runtime,
        step,
        chunks,
        failed=failed,
        worker=runner.goes_on_as,
        claim=None if effects.written else claim,
    )


async def _suspended(runner: "Runner", step: Step, tool: Tool, effects: CallEffects) -> list[Claim]:
    asked = effects.asked
    if asked is None:
        raise RuntimeError(f"The tool {tool.name} raised Suspended by itself.")
    runner.ends_as(Outcome.suspended)
    if isinstance(asked, Followed):
        return await runner.ending(
            step,
            commit_follow,
            runner.runtime,
            step,
            ordinal=asked.ordinal,
            child_version=asked.child_version,
            again=asked.again,
            timeout=asked.timeout,
            shown=await effects.settle(),
            worker=runner.goes_on_as,
        )
    return await runner.ending(
        step,
        commit_suspension,
        runner.runtime,
        step,
        ordinal=asked.ordinal,
        name=asked.name,
        input=asked.input,
        again=asked.again,
        timeout=tool.suspensions[asked.name].timeout,
        shown=await effects.settle(),
        worker=runner.goes_on_as,
    )


async def _call(runner: "Runner", claim: Claim, tool: Tool, effects: CallEffects) -> Any:
    """The output as JSON. Raises what the tool raises, TimeoutError, ToolInputInvalid, ToolOutputInvalid."""
    settings = runner.runtime.settings
    arguments = tool.validate_input(_input(claim))
    context = _context(runner, claim, tool, effects)
    async with asyncio.timeout((tool.timeout or settings.tool_timeout).total_seconds()):
        with contained():
            return await _run(runner, tool, context, arguments, effects)


async def _run(runner: "Runner", tool: Tool, context: ToolContext, arguments: Any, effects: CallEffects) -> Any:
    if tool.is_generator:
        return await _last(tool, tool.call(context, arguments), effects)
    if tool.is_async:
        return tool.dump_output(await tool.call(context, arguments))
    values = contextvars.copy_context()

    def call() -> Any:
        return in_thread(values.run, tool.call, context, arguments)

    return tool.dump_output(await asyncio.get_running_loop().run_in_executor(runner.threads, call))


async def _last(tool: Tool, outputs: AsyncIterator[Any], effects: CallEffects) -> Any:
    """Shows every output that a generator yields as preliminary; the last one is the output."""
    output: Any = None
    async for value in outputs:
        output = tool.dump_output(value)
        await effects.preliminary(output)
    return output


def _input(claim: Claim) -> Any:
    return next(part for part in claim.own_message.parts if part.get("toolCallId") == claim.step.tool_call_id)["input"]


def _context(runner: "Runner", claim: Claim, tool: Tool, effects: CallEffects) -> ToolContext:
    thread, run, step = claim.thread, claim.run, claim.step
    agent = runner.runtime.registry.get(step.agent)
    return ToolContext(
        thread_id=thread.thread_id,
        run_id=run.run_id,
        message_id=claim.own_message.message_id,
        tool_call_id=step.tool_call_id or "",
        agent=agent.name,
        identity=Identity.of_owner(thread.owner),
        client_data=None if run.client_data is None else agent.read_client_data(run.client_data),
        tries=step.tries + 1,
        idempotency_key=step.step_id,
        tool=tool,
        effects=effects,
        ui_data=agent.ui_data,
        loop=asyncio.get_running_loop(),
    )


def _settled(runner: "Runner", call_id: str, output: Any) -> list[Chunk]:
    limit = runner.runtime.settings.output_max_bytes
    if (size := len(dumps(output))) > limit:
        text = f"The output of the tool is too large: {size} bytes, the limit is {limit}."
        raise _OutputTooLarge(text)
    return [{"type": "tool-output-available", "toolCallId": call_id, "output": output}]


class _OutputTooLarge(Exception):
    """The message is for the model."""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _detail(tool: Tool, error: ToolError, *, limit: int) -> Any:
    """The error's detail as JSON; what is no JSON, or too large, is left out, because the error matters more."""
    if error.detail is None:
        return ABSENT
    try:
        detail = clean(error.detail)
        size = len(dumps(detail))
    except (ValueError, TypeError):
        logger.error("The detail of an error of the tool %s is no JSON and was dropped.", tool.name)
        return ABSENT
    if size > limit:
        logger.error("The detail of an error of the tool %s has %d bytes and was dropped.", tool.name, size)
        return ABSENT
    return detail


def _may_pass(error: Exception) -> bool:
    """Whether running the call again may help: not when its input, its output or its own decision was the reason."""
    decided = (
        ToolError
        | ToolInputInvalid
        | ToolOutputInvalid
        | _OutputTooLarge
        | OutcomeUnknown
        | ChangedSinceSuspension
        | ThreadsTooDeep
    )
    return not isinstance(error, decided)


def _error(tool: Tool, call_id: str, error: Exception, *, limit: int) -> list[Chunk]:
    """What the model and people read; the traceback stays in the log."""
    match error:
        case ToolError():
            return call_error(
                call_id,
                clean_text(error.code or ErrorCode.failed.value)[:LONGEST_CODE],
                text=_cut(clean_text(str(error))) or None,
                detail=_detail(tool, error, limit=limit),
            )
        case ToolInputInvalid():
            return call_error(call_id, ErrorCode.input_invalid, text=error.detail)
        case ToolOutputInvalid():
            return call_error(call_id, ErrorCode.output_invalid, text=TEXTS[ErrorCode.output_invalid])
        case _OutputTooLarge():
            return call_error(call_id, ErrorCode.output_invalid, text=str(error))
        case OutcomeUnknown():
            return call_error(call_id, ErrorCode.interrupted, text=error.detail)
        case ThreadsTooDeep():
            return call_error(call_id, error.code, text=error.detail)
        case ChangedSinceSuspension():
            return call_error(call_id, ErrorCode.changed_since_suspension, text=error.detail)
        case TimeoutError():
            return call_error(call_id, ErrorCode.timeout)
    return call_error(call_id, ErrorCode.failed)


def _log(claim: Claim, error: Exception) -> None:
    """What the tool decided, and what the model can correct, is an event; the rest is for who maintains the tool."""
    name = named(claim.thread, claim.step)
    match error:
        case ToolError() | ToolInputInvalid() | ThreadsTooDeep():
            logger.info("A tool call ended with an error (%s): %s", shortened(str(error)), name)
        case ToolOutputInvalid() | _OutputTooLarge() | OutcomeUnknown() | ChangedSinceSuspension():
            logger.error("A tool failed (%s): %s", shortened(str(error)), name)
        case TimeoutError():
            logger.error("A tool did not end in time: %s", name)
        case _:
            logger.error("A tool failed: %s", name, exc_info=error)
