"""Stored messages to what pydantic-ai sends: history that a provider accepts, whatever was stored.

Unknown keys and part types are skipped. Every tool call gets exactly one result. Nothing is ever fetched.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from pai.models.attachments import Attachments
from pai.models.call_names import CallIds, call_name
from pai.models.model import LoadFile
from pai.models.response_facts import PART_TYPE, Called, made_by, response_fields
from pai.models.response_parts import ResponseParts

_log = logging.getLogger("pai.models")

NO_RESULT = "The tool call has no result: it was interrupted."
DENIED = "Tool call execution denied."


async def load_messages(
    messages: Sequence[Mapping[str, Any]], *, called: Called, load_file: LoadFile | None = None
) -> list[ModelMessage]:
    """The history for the model that is about to be called. `load_file` reads attachments and generated files."""
    attachments, ids = Attachments(called=called, load_file=load_file), CallIds()
    history: list[ModelMessage] = []
    for message in messages:
        parts = [part for part in _listed(message.get("parts")) if isinstance(part, Mapping)]
        match message.get("role"):
            case "system":
                text = "".join(part["text"] for part in parts if _is_text(part))
                _request(history, [SystemPromptPart(text)] if text else [])
            case "user":
                content = await _user_content(parts, attachments)
                _request(history, [UserPromptPart(content)] if content else [])
            case "assistant":
                for block in _blocks(parts):
                    await _assistant(history, block, parts, called=called, attachments=attachments, ids=ids)
    return history


async def _user_content(parts: Sequence[Mapping[str, Any]], attachments: Attachments) -> str | list[UserContent]:
    content: list[UserContent] = []
    for part in parts:
        if _is_text(part):
            if part["text"].strip():  # Anthropic refuses text without a letter
                content.append(part["text"])
        elif (file := await attachments.content(part)) is not None:
            content.append(file)
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content


async def _assistant(
    history: list[ModelMessage],
    block: Sequence[Mapping[str, Any]],
    parts: Sequence[Mapping[str, Any]],
    *,
    called: Called,
    attachments: Attachments,
    ids: CallIds,
) -> None:
    facts = next((part.get("data") for part in [*block, *parts] if part.get("type") == PART_TYPE), None)
    same = facts if isinstance(facts, Mapping) and made_by(facts, called) else None
    built = ResponseParts(same=same is not None)
    results: list[ModelRequestPart] = []
    seen: set[str] = set()
    for part in block:
        call_id = part.get("toolCallId")
        if not isinstance(call_id, str):
            await built.add(part, attachments)
        elif call_id not in seen:
            seen.add(call_id)
            if part.get("providerExecuted") is True:
                built.add_provider_call(part)
            elif part.get("state") != "input-streaming":  # its input never became one
                name, known = call_name(part), ids.chosen(call_id, same=same is not None)
                built.add_call(part, name, known)
                results.append(_result(part, name, known))
    if built.parts:
        fields = {} if same is None else response_fields(same, called)
        history.append(ModelResponse(parts=built.parts, **fields))
    _request(history, results)


def _result(part: Mapping[str, Any], name: str, call_id: str) -> ToolReturnPart:
    """The one result of a call."""
    match part.get("state"):
        case "output-available":
            return ToolReturnPart(name, part.get("output"), call_id)
        case "output-error":
            return ToolReturnPart(name, str(part.get("errorText") or "The tool failed."), call_id, outcome="failed")
        case "output-denied":
            return ToolReturnPart(name, _reason(part), call_id, outcome="denied")
        case "approval-responded" if _approval(part).get("approved") is False:
            return ToolReturnPart(name, _reason(part), call_id, outcome="denied")
        case state:
            known_as = part["toolCallId"]
            _log.error("The tool call %s reached a model call in state %s, without a result.", known_as, state)
            return ToolReturnPart(name, NO_RESULT, call_id, outcome="failed")


def _approval(part: Mapping[str, Any]) -> Mapping[str, Any]:
    approval = part.get("approval")
    return approval if isinstance(approval, Mapping) else {}


def _reason(part: Mapping[str, Any]) -> str:
    return str(_approval(part).get("reason") or DENIED)


def _request(history: list[ModelMessage], parts: Sequence[ModelRequestPart]) -> None:
    """Add to the request that is being assembled: results and what the user says next are one turn."""
    if not parts:
        return
    if history and isinstance(last := history[-1], ModelRequest):
        last.parts = [*last.parts, *parts]
    else:
        history.append(ModelRequest(parts=list(parts)))


def _blocks(parts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The parts of each step; a step is one response of a model."""
    blocks: list[list[Mapping[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            blocks.append([])
        else:
            blocks[-1].append(part)
    return blocks


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str) and part["text"] != ""


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
