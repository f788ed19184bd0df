"""The model step: one provider call, streamed into one message, committed under the step's fence."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai.contract import Agent, RunContext, StepPreparation, ToolKind
from pai.engine import commit
from pai.engine.claim import Claim, read_history
from pai.engine.commit import ModelOutcome
from pai.engine.content import stored_tool
from pai.engine.log_names import named, shortened
from pai.engine.patience import patiently
from pai.engine.records import message_record
from pai.engine.streaming import checkpoint, reopen_stream
from pai.engine.transaction import StepLost
from pai.fold import Fold
from pai.log.entries import chunk_field
from pai.log.errors import Fenced, LogError
from pai.log.live_channel import LiveChannel, Reopening
from pai.models import FinishReason, ModelError, ModelRequest, ModelResult, ModelStream, ToolDefinition
from pai.protocol.errors import PaiError, Unavailable
from pai.protocol.json import dumps
from pai.protocol.state import ErrorCode
from pai.protocol.usage import UsageSummary, empty_usage
from pai.store.tables import Step
from pai_workers.contexts import hook_outcome, run_context
from pai_workers.history import history_of
from pai_workers.metrics import Outcome
from pai_workers.model_files import ModelFiles
from pai_workers.retry import retry_delay

if TYPE_CHECKING:
    from pai_workers.runner import Runner

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attempt:
    """What one attempt has produced so far."""

    claim: Claim
    agent: Agent
    fold: Fold
    channel: LiveChannel
    target: bytes
    context: RunContext | None = None
    provider: ModelStream | None = None
    model: tuple[str, str] = ("", "")
    first_chunk_ms: int | None = None
    unstored: int = 0
    started: float = field(default_factory=time.monotonic)
    stored_at: float = field(default_factory=time.monotonic)

    @property
    def usage(self) -> UsageSummary:
        return empty_usage() if self.provider is None else self.provider.usage

    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self.started) * 1000)

    def emit(self, chunk: dict[str, Any]) -> None:
        """Folds a chunk and hands it to the publisher: both or, when it cannot be folded, neither."""
        self.fold.apply(chunk)
        self.channel.write(self.target, dumps(chunk))
        self.unstored += 1


async def run_model(runner: "Runner", claim: Claim) -> list[Claim]:
    """-> the steps to go on with. Raises StepLost or Fenced when the step was taken over, Unavailable without SQL."""
    step = claim.step
    await patiently(lambda: read_history(runner.runtime, claim))
    attempt = _open(runner, claim)
    try:
        return await _ended(runner, attempt)
    except (asyncio.CancelledError, StepLost, Fenced) as error:
        # The commit that would have counted it did not happen.
        released = runner.draining and isinstance(error, asyncio.CancelledError)
        runner.runtime.spawn(_count_aborted(runner, step, attempt.usage, released=released))
        raise
    finally:
        attempt.channel.close()


async def _ended(runner: "Runner", attempt: _Attempt) -> list[Claim]:
    """The call and its commit, whether it went well or not."""
    try:
        result = await _call(runner, attempt)
        return await _commit(runner, attempt, result)
    except ModelError as error:
        return await _failed(runner, attempt, error)
    except (StepLost, LogError, Unavailable):
        raise
    except TimeoutError:
        return await _give_up(runner, attempt, ErrorCode.timeout, "The model did not finish in time.")
    except PaiError as error:
        return await _give_up(runner, attempt, ErrorCode.failed, error.detail)
    except Exception:
        logger.exception("A model step failed: %s", named(attempt.claim.thread, attempt.claim.step))
        return await _give_up(runner, attempt, ErrorCode.failed, "Something went wrong while answering.")


def _open(runner: "Runner", claim: Claim) -> _Attempt:
    step, message = claim.step, claim.own_message
    fold = Fold(message_record(message))

    async def on_lost(channel: LiveChannel) -> Reopening:
        return await patiently(lambda: reopen_stream(runner.runtime, step, fold, channel))

    channel = runner.publisher.channel(
        step.version,
        epoch=claim.thread.log_epoch,
        number=step.number,
        attempt=step.attempt,
        on_lost=on_lost,
        after=claim.published,
    )
    target = chunk_field(step.run_id, message.message_id)
    return _Attempt(claim, runner.runtime.registry.get(step.agent), fold, channel, target)


async def _call(runner: "Runner", attempt: _Attempt) -> ModelResult:
    claim, settings = attempt.claim, runner.runtime.settings
    attempt.context = run_context(claim, attempt.agent)
    prepared = await attempt.agent.step_prepared(attempt.context)
    request = await _request(runner, attempt, prepared)
    model = runner.models.get(prepared.model or attempt.agent.model)
    attempt.model = (model.provider, model.name)
    async with asyncio.timeout(2 * settings.model_deadline.total_seconds()), model.stream(request) as provider:
        attempt.provider = provider
        async for chunk in provider:
            if attempt.first_chunk_ms is None:
                attempt.first_chunk_ms = attempt.elapsed_ms()
                _begin(attempt)
            attempt.emit(chunk)
            await attempt.channel.room()
            if attempt.unstored >= settings.fold_chunks or (
                time.monotonic() - attempt.stored_at > settings.fold_interval.total_seconds()
            ):
                await _store(runner, attempt)
        if attempt.first_chunk_ms is None:
            _begin(attempt)
        return provider.result


def _begin(attempt: _Attempt) -> None:
    """The first chunks of the message; a later attempt finds them there already."""
    message = attempt.claim.own_message
    if not attempt.fold.message["parts"]:
        attempt.emit({"type": "start", "messageId": message.message_id, "messageMetadata": message.meta})
        attempt.emit({"type": "start-step"})


async def _store(runner: "Runner", attempt: _Attempt) -> None:
    """Stores the folding, so that the log need not keep everything since the step began."""
    sequence = await attempt.channel.flush()
    try:
        await checkpoint(runner.runtime, attempt.claim.step, attempt.fold, sequence=sequence)
    except Unavailable as error:
        name = named(attempt.claim.thread, attempt.claim.step)
        logger.warning("What was streamed is not stored yet (%s): %s", error, name)
    attempt.unstored, attempt.stored_at = 0, time.monotonic()


async def _request(runner: "Runner", attempt: _Attempt, prepared: StepPreparation) -> ModelRequest:
    claim, agent = attempt.claim, attempt.agent
    context = attempt.context or run_context(claim, agent)
    earlier = [message for message in claim.seen if message.position < claim.own_message.position]
    history = history_of(earlier, tokens=agent.history_tokens, run_id=claim.run.run_id)
    instructions = prepared.instructions
    if instructions is None:
        instructions = await agent.instructions_for(context)
    messages = history if prepared.messages is None else prepared.messages
    files = ModelFiles(runner.runtime, claim.thread, message_id=claim.own_message.message_id)
    await files.prepare(messages)
    return ModelRequest(
        instructions=instructions or None,
        messages=messages,
        load_file=files.load,
        store_file=files.store,
        tools=_tools(agent, claim, offered=prepared.tools),
        settings={**agent.model_settings, **(prepared.model_settings or {})},
        message_id=claim.own_message.message_id,
        run_id=claim.run.run_id,
        used_call_ids=_used_ids(claim),
    )


def _tools(agent: Agent, claim: Claim, *, offered: Any) -> list[ToolDefinition]:
    own = [tool for name, tool in agent.tools.items() if offered is None or name in offered]
    # A tool that was declared since then wins over one of the same name that came with the request.
    sent = [stored_tool(tool) for tool in claim.run.client_tools or () if tool["name"] not in agent.tools]
    return [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            strict=None if tool.kind is ToolKind.server else False,
            dynamic=tool.dynamic,
        )
        for tool in [*own, *sent]
    ]


def _used_ids(claim: Claim) -> frozenset[str]:
    """Ids of calls and reasoning parts that the run has used: those of this step will differ."""
    used = set()
    for message in claim.seen:
        if message.run_id == claim.run.run_id and message.message_id != claim.step.message_id:
            for part in message.parts:
                used |= {value for key in ("toolCallId", "id") if isinstance(value := part.get(key), str)}
    return frozenset(used)


async def _commit(runner: "Runner", attempt: _Attempt, result: ModelResult) -> list[Claim]:
    sequence = await attempt.channel.flush()
    diagnostics = dict(result.diagnostics) | {
        "attempt": (attempt.claim.step.attempt + 1) // 2,
        "durationMs": attempt.elapsed_ms(),
    }
    if attempt.first_chunk_ms is not None:
        diagnostics["firstChunkMs"] = attempt.first_chunk_ms
    outcome = ModelOutcome(
        fold=attempt.fold,
        sequence=sequence,
        reason="suspended" if result.suspended else result.finish_reason.value,
        usage=result.usage,
        diagnostics=diagnostics,
        client_tools=attempt.claim.run.client_tools or (),
    )
    hooks = None if attempt.context is None else hook_outcome(attempt.context)
    claim = attempt.claim
    async with runner.pace(awaited=result.suspended or result.finish_reason is FinishReason.tool_calls):
        return await runner.ending(
            claim.step, commit.commit_model, runner.runtime, claim, outcome, worker=runner.goes_on_as, hooks=hooks
        )


async def _failed(runner: "Runner", attempt: _Attempt, error: ModelError) -> list[Claim]:
    """Another attempt when that may help; else the run fails with what the provider said."""
    step, settings = attempt.claim.step, runner.runtime.settings
    # The claim's lease tells the database's time; what passed since then is measured here.
    now = (step.lease_expires_at or 0) - runner.runtime.lease_ms + attempt.elapsed_ms()
    delay = retry_delay(error, step, settings=settings, now=now)
    again = "the run fails" if delay is None else f"again in {delay.total_seconds():.1f} s"
    reason, name = shortened(f"{error.code}: {error.message}"), named(attempt.claim.thread, step)
    logger.warning("A model call failed, %s (%s): %s model=%s", again, reason, name, ":".join(attempt.model))
    if delay is None:
        return await _give_up(runner, attempt, error.code, error.message)
    runner.ends_as(Outcome.retried)
    await runner.ending(
        step,
        commit.retry_model,
        runner.runtime,
        step,
        fold=attempt.fold,
        sequence=await attempt.channel.flush(),
        delay=delay,
        usage=attempt.usage,
        counts=not error.waits,
    )
    return []


async def _give_up(runner: "Runner", attempt: _Attempt, code: str, message: str) -> list[Claim]:
    runner.ends_as(Outcome.failed)
    return await runner.ending(
        attempt.claim.step,
        commit.fail_model,
        runner.runtime,
        attempt.claim.step,
        fold=attempt.fold,
        sequence=await attempt.channel.flush(),
        code=code,
        message=message,
        usage=attempt.usage,
        worker=runner.goes_on_as,
    )


async def _count_aborted(runner: "Runner", step: Step, usage: UsageSummary, *, released: bool) -> None:
    try:
        await commit.add_usage_of_stopped(runner.runtime, step, usage, released=released)
    except Unavailable as error:
        logger.warning("The usage of a stopped call was not counted: %s", error)
