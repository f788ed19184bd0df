"""Small texts that a model or a function makes beside the run: titles of threads, summaries of reasoning."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pai.contract import ModelTask, RunContext, invoke
from pai.engine.claim import Claim
from pai.fold.reserved import reasoning_summary
from pai.models import ModelRequest
from pai.protocol.text import clean_text
from pai.protocol.usage import UsageSummary, add_usage, empty_usage

if TYPE_CHECKING:
    from pai_workers.runner import Runner

LONGEST_TITLE = 200


@dataclasses.dataclass(slots=True)
class Texts:
    """What was made, and what that cost."""

    title: str | None = None
    chunks: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    usage: UsageSummary = dataclasses.field(default_factory=empty_usage)


async def make_title(runner: "Runner", claim: Claim, context: RunContext) -> Texts:
    """A title for the thread, from its messages so far."""
    made = Texts()
    rule = runner.runtime.registry.get(claim.step.agent).thread_titles
    first = next((message for message in context.messages if message["role"] == "user"), None)
    if first is None or rule is None or isinstance(rule, str):
        return made
    text = await _made(runner, claim, rule, dataclasses.replace(context, messages=[first]), made)
    made.title = " ".join(text.split())[:LONGEST_TITLE] or None
    return made


async def summarise(runner: "Runner", claim: Claim, context: RunContext) -> Texts:
    """A summary for each reasoning part of the step's message that has none.

    A function is given a context whose `messages` hold just the reasoning.
    """
    made = Texts()
    rule = runner.runtime.registry.get(claim.step.agent).reasoning_summaries
    if rule is None:
        return made
    for part in claim.own_message.parts:
        if part["type"] == "reasoning" and part.get("id") and part["text"].strip():
            shown = {**_message(claim), "parts": [part]}
            text = await _made(runner, claim, rule, dataclasses.replace(context, messages=[shown]), made)
            if text.strip():
                made.chunks.append(reasoning_summary(part["id"], text.strip()))
    return made


async def _made(runner: "Runner", claim: Claim, rule: Any, context: RunContext, made: Texts) -> str:
    if not isinstance(rule, ModelTask):
        return clean_text(str(await invoke(rule, context) or ""))
    text = "\n\n".join(_texts(context.messages))
    model = runner.models.get(rule.model)
    request = ModelRequest(
        instructions=rule.instructions,
        messages=[{"id": "text", "role": "user", "parts": [{"type": "text", "text": text}]}],
        settings=dict(rule.model_settings or {}),
        message_id=claim.step.step_id,
        run_id=claim.run.run_id,
    )
    async with model.stream(request) as stream:
        pieces = [chunk["delta"] async for chunk in stream if chunk["type"] == "text-delta"]
        made.usage = add_usage(made.usage, stream.usage)
    return "".join(pieces)


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [part["text"] for message in messages for part in message["parts"] if part["type"] in ("text", "reasoning")]


def _message(claim: Claim) -> dict[str, Any]:
    message = claim.own_message
    return {"id": message.message_id, "role": message.role, "metadata": message.meta}
