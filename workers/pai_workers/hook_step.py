"""The hook step: an application's functions at the start and at the end of a run."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from pai.contract import PendingAction, RunOutcome
from pai.engine.claim import Claim, read_history
from pai.engine.closing import own_calls
from pai.engine.commit import HookOutcome, commit_hook, commit_texts
from pai.engine.log_names import named
from pai.engine.patience import patiently
from pai.engine.plan import RunHook, SideHook
from pai.protocol.errors import ValidationFailed
from pai.protocol.requests import PendingActionRef
from pai_workers.contexts import hook_outcome, run_context
from pai_workers.metrics import Outcome
from pai_workers.texts import make_title, summarise

if TYPE_CHECKING:
    from pai_workers.runner import Runner

logger = logging.getLogger(__name__)


async def run_hook(runner: "Runner", claim: Claim) -> list[Claim]:
    """-> the steps to go on with. What the functions raise is logged; a failed `on_run_start` fails the run."""
    runtime = runner.runtime
    step = claim.step
    await patiently(lambda: read_history(runtime, claim))
    agent = runtime.registry.get(step.agent)
    outcome, error, texts = HookOutcome(), None, None
    try:
        context = run_context(claim, agent)
        async with asyncio.timeout(runtime.settings.tool_timeout.total_seconds()):
            match step.name:
                case RunHook.on_run_start:
                    await agent.run_started(context)
                case RunHook.on_run_finish:
                    await agent.run_finished(context, _outcome(claim.run.error, claim.run.finish_reason))
                case SideHook.on_run_cancelled:
                    await agent.run_finished(context, RunOutcome(status="cancelled", reason=claim.run.reason))
                case SideHook.on_action_pending:
                    if (action := _pending(claim)) is not None:
                        await agent.action_pending(context, action)
                case SideHook.thread_title:
                    texts = await make_title(runner, claim, context)
                case SideHook.reasoning_summary:
                    texts = await summarise(runner, claim, context)
        outcome = hook_outcome(context)
    except Exception:
        logger.exception("A hook failed: %s", named(claim.thread, step))
        runner.ends_as(Outcome.failed)
        error = f"The hook {step.name} failed."
    if texts is not None:
        made: dict[str, Any] = {"title": texts.title, "chunks": texts.chunks, "usage": texts.usage}
        return await runner.ending(step, commit_texts, runtime, step, **made, worker=runner.goes_on_as)
    try:
        return await runner.ending(step, commit_hook, runtime, step, outcome, error=error, worker=runner.goes_on_as)
    except ValidationFailed:
        logger.exception("What a hook added cannot be stored: %s", named(claim.thread, step))
        runner.ends_as(Outcome.failed)
        error = f"The hook {step.name} failed."
        return await runner.ending(
            step, commit_hook, runtime, step, HookOutcome(), error=error, worker=runner.goes_on_as
        )


def _pending(claim: Claim) -> PendingAction | None:
    """The action that this step is about; None when it was answered meanwhile."""
    call_id = claim.step.tool_call_id
    ref = next((ref for ref in claim.thread.actions if ref["toolCallId"] == call_id), None)
    if ref is None:
        return None
    parts = claim.own_message.parts
    suspension = next((part for part in parts if part.get("id") == ref["actionId"]), None)
    call = next(part for part in own_calls(parts) if part["toolCallId"] == call_id)
    asked = call["input"] if suspension is None else suspension["data"]["input"]
    return PendingAction(name=ref["name"], ref=PendingActionRef.read(ref), input=asked)


def _outcome(error: dict[str, str] | None, finish_reason: str | None) -> RunOutcome:
    if error is None:
        return RunOutcome(status="completed", finish_reason=finish_reason)
    return RunOutcome(status="failed", error_code=error["code"], error_message=error["message"])
