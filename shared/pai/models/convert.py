"""Stored messages in the AI SDK's own model-message form, as `convertToModelMessages` of AI SDK 7.0.173 gives them.

Providers are called through `pai.models.loader`; this form is for whoever hands a history to AI SDK code, and it is
what the loader's treatment of tool states is measured against.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai.models.tool_parts import tool_name

ModelMessage = dict[str, Any]

UNAVAILABLE = "Tool output omitted because the tool is no longer available."
DENIED = "Tool call execution denied."

_SETTLED = frozenset({"approval-responded", "output-available", "output-error", "output-denied"})
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


def convert_to_model_messages(
    messages: Sequence[Mapping[str, Any]], *, ignore_incomplete_tool_calls: bool = False
) -> list[ModelMessage]:
    """The model messages; absent keys stand for JavaScript's undefined. Raises ValueError for a relative file URL."""
    last_user = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    converted: list[ModelMessage] = []
    for index, message in enumerate(messages):
        parts = [
            part
            for part in message["parts"]
            if not _is_tool(part)
            or _kept(part, superseded=index < last_user, ignore_incomplete=ignore_incomplete_tool_calls)
        ]
        match message["role"]:
            case "system":
                converted.append(_system(parts))
            case "user":
                converted.append({"role": "user", "content": [_user_part(p) for p in parts if _is_user_content(p)]})
            case "assistant":
                converted += _assistant(parts)
            case role:
                raise ValueError(f"There is no role {role!r}.")
    return converted


def _kept(part: Mapping[str, Any], *, superseded: bool, ignore_incomplete: bool) -> bool:
    state = part.get("state")
    if state == "approval-requested" and superseded:
        return False
    return not ignore_incomplete or (
        state in _SETTLED and not (state == "output-available" and part.get("preliminary"))
    )


def _system(parts: Sequence[Mapping[str, Any]]) -> ModelMessage:
    texts = [part for part in parts if part["type"] == "text"]
    options: dict[str, Any] = {}
    for part in texts:
        options.update(part.get("providerMetadata") or {})
    content = "".join(part["text"] for part in texts)
    return {"role": "system", "content": content, **({"providerOptions": options} if options else {})}


def _assistant(parts: Sequence[Mapping[str, Any]]) -> Iterator[ModelMessage]:
    block: list[Mapping[str, Any]] = []
    for part in parts:
        if part["type"] in ("step-start", "steering-message"):
            yield from _block(block)
            block = []
            if part["type"] == "steering-message":
                yield {"role": "user", "content": [_user_part(inner) for inner in part["parts"]]}
        else:
            block.append(part)
    yield from _block(block)


def _block(block: Sequence[Mapping[str, Any]]) -> Iterator[ModelMessage]:
    """The parts of one step: what the model said, then what its tools answered."""
    content = [converted for part in block for converted in _said(part)]
    if content:
        yield {"role": "assistant", "content": content}
    answers = [answer for part in block if _is_tool(part) for answer in _answered(part)]
    if answers:
        yield {"role": "tool", "content": answers}


def _said(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    match part["type"]:
        case "text" | "reasoning":
            yield {"type": part["type"], "text": part["text"], **_options(part.get("providerMetadata"))}
        case "custom":
            yield {"type": "custom", "kind": part["kind"], **_options(part.get("providerMetadata"))}
        case "file":
            yield _file(part)
        case "reasoning-file":
            data = {"type": "url", "url": _absolute(part["url"])}
            known = {"type": "reasoning-file", "data": data, "mediaType": part["mediaType"]}
            yield {**known, **_options(part.get("providerMetadata"))}
        case _ if _is_tool(part) and part["state"] != "input-streaming":
            yield from _called(part)


def _called(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    failed = part["state"] == "output-error"
    named = {"toolCallId": part["toolCallId"], "toolName": tool_name(part)}
    given = part.get("input")
    if failed and given is None:
        given = part.get("rawInput")
    known_input = {"input": given} if given is not None or (not failed and "input" in part) else {}
    executed = _present(part, "providerExecuted")
    metadata = part.get("callProviderMetadata") or (part.get("resultProviderMetadata") if failed else None)
    yield {"type": "tool-call", **named, **known_input, **executed, **_options(metadata)}
    approval = part.get("approval")
    if approval is not None:
        asked = {"type": "tool-approval-request", "approvalId": approval["id"], "toolCallId": part["toolCallId"]}
        reason = {"reason": approval["requestReason"]} if approval.get("requestReason") is not None else {}
        more = {key: approval[key] for key in ("isAutomatic", "inputSchemaInput", "signature") if key in approval}
        yield {**asked, **reason, **more}
    if part.get("providerExecuted") is True and part["state"] in ("output-available", "output-error"):
        output = {"type": "error-json", "value": part.get("errorText")} if failed else _output(part)
        metadata = part.get("resultProviderMetadata") or part.get("callProviderMetadata")
        yield {"type": "tool-result", **named, "output": output, **_options(metadata)}


def _answered(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    approval = part.get("approval") or {}
    executed = part.get("providerExecuted") is True
    if approval.get("approved") is not None:
        response = {"type": "tool-approval-response", "approvalId": approval["id"], "approved": approval["approved"]}
        yield {**response, **_present(approval, "reason"), **_present(part, "providerExecuted")}
    result = {"type": "tool-result", "toolCallId": part["toolCallId"], "toolName": tool_name(part)}
    options = _options(part.get("callProviderMetadata"))
    if part["state"] == "approval-responded" and approval.get("approved") is False:
        yield {**result, "output": {"type": "execution-denied", **_present(approval, "reason")}, **options}
    if executed:
        return
    match part["state"]:
        case "output-denied":
            denied = approval["reason"] if approval.get("reason") is not None else DENIED
            yield {**result, "output": {"type": "error-text", "value": denied}, **options}
        case "output-error":
            yield {**result, "output": {"type": "error-text", "value": part["errorText"]}, **options}
        case "output-available":
            yield {**result, "output": _output(part), **options}


def _output(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "dynamic-tool" and part.get("dynamic") is False:
        return {"type": "text", "value": UNAVAILABLE}
    output = part.get("output")
    return {"type": "text" if isinstance(output, str) else "json", "value": output}


def _user_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"], **_options(part.get("providerMetadata"))}
    return _file(part)


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    reference = part.get("providerReference")
    data = (
        {"type": "url", "url": _absolute(part["url"])}
        if reference is None
        else {"type": "reference", "reference": reference}
    )
    known = {"type": "file", "mediaType": part["mediaType"], **_present(part, "filename"), "data": data}
    return {**known, **_options(part.get("providerMetadata"))}


def _absolute(url: str) -> str:
    if _ABSOLUTE.match(url) is None:
        raise ValueError("Invalid URL")
    return url


def _options(metadata: Any) -> dict[str, Any]:
    return {} if metadata is None else {"providerOptions": metadata}


def _present(source: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: source[key]} if source.get(key) is not None else {}


def _is_user_content(part: Mapping[str, Any]) -> bool:
    return part["type"] in ("text", "file")


def _is_tool(part: Mapping[str, Any]) -> bool:
    return part["type"] == "dynamic-tool" or str(part["type"]).startswith("tool-")
