"""Answers of a model in the four wire formats of streaming providers, as lists of server-sent events."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from support.openai_formats import openai_chat, openai_responses
from support.provider_answers import Answer, Call, Found, Search, Text, Thinking, Usage, event, pieces


def anthropic(answer: Answer) -> list[bytes]:
    events: list[bytes] = []

    def emit(kind: str, **data: Any) -> None:
        events.append(event({"type": kind, **data}, kind))

    usage = answer.usage
    start: dict[str, Any] = {"input_tokens": usage.input if usage else 0, "output_tokens": 1}
    if usage and usage.cache_read is not None:
        start["cache_read_input_tokens"] = usage.cache_read
    if usage and usage.cache_write is not None:
        start["cache_creation_input_tokens"] = usage.cache_write
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": answer.model, "content": []}
    emit("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": start})
    index = 0

    def block(begin: dict[str, Any], deltas: Sequence[dict[str, Any]] = ()) -> None:
        nonlocal index
        emit("content_block_start", index=index, content_block=begin)
        for delta in deltas:
            emit("content_block_delta", index=index, delta=delta)
        emit("content_block_stop", index=index)
        index += 1

    for item in answer.items:
        match item:
            case Text():
                cited = [
                    {"type": "citations_delta", "citation": {
                        "type": "web_search_result_location", "url": url, "title": title,
                        "cited_text": "cited", "encrypted_index": "ZW5j"}}
                    for url, title in item.citations
                ]  # fmt: skip
                begin: dict[str, Any] = {"type": "text", "text": ""}
                block(begin, [{"type": "text_delta", "text": delta} for delta in item.deltas] + cited)
            case Thinking():
                deltas = [{"type": "thinking_delta", "thinking": delta} for delta in item.deltas]
                seal = {"type": "signature_delta", "signature": item.signature}
                block({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, seal])
            case Call():
                parts = pieces(item.arguments, item.pieces)
                block(
                    {"type": "tool_use", "id": item.id, "name": item.name, "input": {}},
                    [{"type": "input_json_delta", "partial_json": part} for part in parts],
                )
            case Search():
                begin = {"type": "server_tool_use", "id": item.id, "name": "web_search", "input": {}}
                block(begin, [{"type": "input_json_delta", "partial_json": json.dumps({"query": item.query})}])
                if item.results is not None:
                    block(_anthropic_results(item.id, item.results))
            case Found():
                block(_anthropic_results(item.id, item.results))
    if answer.finish is not None:
        called = any(isinstance(item, Call) for item in answer.items)
        reasons = {"stop": "tool_use" if called else "end_turn", "length": "max_tokens", "pause": "pause_turn",
                   "filter": "refusal"}  # fmt: skip
        delta = {"stop_reason": reasons[answer.finish], "stop_sequence": None}
        counts = {**start, "output_tokens": usage.output if usage else 0}
        for _ in range(2 if answer.usage_twice else 1):
            emit("message_delta", delta=delta, usage=counts)
        emit("message_stop")
    return events


def _anthropic_results(id: str, results: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found = [
        {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "ZW5j", "page_age": None}
        for url, title in results
    ]
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": found}


def google(answer: Answer) -> list[bytes]:
    usage = _google_usage(answer.usage)
    parts: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
    cited: list[tuple[str, str]] = []
    whole = ""
    for item in answer.items:
        match item:
            case Text():
                parts += [([{"text": delta}], {}) for delta in item.deltas]
                whole += "".join(item.deltas)
                cited += item.citations
            case Thinking():
                parts += [([{"text": delta, "thought": True}], {}) for delta in item.deltas]
            case Call():
                call = {"functionCall": {"name": item.name, "args": json.loads(item.arguments or "{}")}}
                thought = any(isinstance(other, Thinking) for other in answer.items)
                seal = {"thoughtSignature": base64.b64encode(b"seal").decode()} if thought else {}
                parts.append(([{**call, **seal}], {}))
            case Search():
                parts.append(([], {}))
    if cited:
        grounding = {
            "webSearchQueries": [item.query for item in answer.items if isinstance(item, Search)],
            "groundingChunks": [{"web": {"uri": url, "title": title}} for url, title in cited],
            "groundingSupports": [
                {"segment": {"startIndex": 0, "endIndex": len(whole.encode()), "text": whole},
                 "groundingChunkIndices": list(range(len(cited)))}
            ],
        }  # fmt: skip
        parts.append(([{"text": ""}], {"groundingMetadata": grounding}))
    reasons = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
    events = []
    for number, (content, more) in enumerate(parts or [([{"text": ""}], {})]):
        last = number == max(0, len(parts) - 1)
        finish = {"finishReason": reasons[answer.finish]} if last and answer.finish else {}
        candidate = {"content": {"role": "model", "parts": content}, "index": 0, **finish, **more}
        body: dict[str, Any] = {"candidates": [candidate], "modelVersion": answer.model, "responseId": "resp-1"}
        if usage and (last or answer.usage_twice):
            body["usageMetadata"] = usage
        events.append(event(body))
    return events


def _google_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    reasoning = usage.reasoning or 0
    known: dict[str, Any] = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
    if usage.cache_read is not None:
        known["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        known["thoughtsTokenCount"] = usage.reasoning
    return known


FORMATS: dict[str, Callable[[Answer], list[bytes]]] = {
    "openai": openai_responses,
    "openai-chat": openai_chat,
    "anthropic": anthropic,
    "google": google,
}


def error_body(provider: str, status: int, message: str, code: str | None = None) -> Any:
    """The body with which a provider answers a status that is an error."""
    if provider == "anthropic":
        kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
                 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}
    if provider == "google":
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip
        return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}
    return {"error": {"message": message, "type": "error", "param": None, "code": code}}
