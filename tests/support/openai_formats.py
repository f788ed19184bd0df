"""Answers of a model as OpenAI streams them, in both of its formats."""

from typing import Any

from support.provider_answers import Answer, Call, Search, Text, Thinking, Usage, event, pieces


def openai_chat(answer: Answer) -> list[bytes]:
    def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, usage: Any = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": answer.model}
        return event({**body, "choices": choices, **({"usage": usage} if usage else {})})

    events = [chunk({"role": "assistant", "content": ""})]
    calls = 0
    for item in answer.items:
        match item:
            case Text():
                events += [chunk({"content": delta}) for delta in item.deltas]
            case Thinking():
                events += [chunk({"reasoning_content": delta}) for delta in item.deltas]
            case Call():
                head = {"index": calls, "id": item.id, "type": "function"}
                events.append(chunk({"tool_calls": [{**head, "function": {"name": item.name, "arguments": ""}}]}))
                events += [
                    chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                    for piece in pieces(item.arguments, item.pieces)
                ]
                calls += 1
            case Search():
                raise ValueError("Chat Completions runs no searches")
    if answer.finish is not None:
        reasons = {"stop": "tool_calls" if calls else "stop", "filter": "content_filter"}
        events.append(chunk({}, reasons.get(answer.finish, answer.finish)))
    if answer.usage is not None:
        usage: dict[str, Any] = {
            "prompt_tokens": answer.usage.input,
            "completion_tokens": answer.usage.output,
            "total_tokens": answer.usage.input + answer.usage.output,
        }
        if answer.usage.cache_read is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": answer.usage.cache_read}
        if answer.usage.reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": answer.usage.reasoning}
        events += [chunk(None, usage=usage)] * (2 if answer.usage_twice else 1)
    return [*events, b"data: [DONE]\n\n"]


def openai_responses(answer: Answer) -> list[bytes]:
    events: list[bytes] = []
    output: list[dict[str, Any]] = []

    def emit(kind: str, **data: Any) -> None:
        events.append(event({"type": kind, "sequence_number": len(events), **data}, kind))

    def response(status: str, **more: Any) -> dict[str, Any]:
        fixed = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {"id": "resp_1", "object": "response", "created_at": 1, "model": answer.model, "status": status,
                "output": output, **fixed, **more}  # fmt: skip

    emit("response.created", response=response("in_progress"))
    for item in answer.items:
        index = len(output)
        match item:
            case Text():
                place = {"item_id": item.id, "output_index": index, "content_index": 0}
                message = {
                    "type": "message",
                    "id": item.id,
                    "role": "assistant",
                    "status": "in_progress",
                    "content": [],
                }
                emit("response.output_item.added", output_index=index, item=message)
                part = {"type": "output_text", "text": "", "annotations": []}
                emit("response.content_part.added", **place, part=part)
                for delta in item.deltas:
                    emit("response.output_text.delta", **place, delta=delta, logprobs=[])
                whole = "".join(item.deltas)
                notes = [
                    {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": len(whole)}
                    for url, title in item.citations
                ]
                for number, note in enumerate(notes):
                    emit("response.output_text.annotation.added", **place, annotation_index=number, annotation=note)
                emit("response.output_text.done", **place, text=whole, logprobs=[])
                part = {"type": "output_text", "text": whole, "annotations": notes}
                emit("response.content_part.done", **place, part=part)
                done = {**message, "status": "completed", "content": [part]}
            case Thinking():
                place = {"item_id": item.id, "output_index": index}
                emit("response.output_item.added", output_index=index,
                     item={"type": "reasoning", "id": item.id, "summary": []})  # fmt: skip
                for number, delta in enumerate(item.deltas):
                    summary = {"type": "summary_text", "text": ""}
                    emit("response.reasoning_summary_part.added", **place, summary_index=number, part=summary)
                    emit("response.reasoning_summary_text.delta", **place, summary_index=number, delta=delta)
                    emit("response.reasoning_summary_text.done", **place, summary_index=number, text=delta)
                    summary = {"type": "summary_text", "text": delta}
                    emit("response.reasoning_summary_part.done", **place, summary_index=number, part=summary)
                done = {"type": "reasoning", "id": item.id, "encrypted_content": item.signature,
                        "summary": [{"type": "summary_text", "text": delta} for delta in item.deltas]}  # fmt: skip
            case Call():
                call_item = f"fc_{item.id}"
                call = {"type": "function_call", "id": call_item, "call_id": item.id, "name": item.name}
                emit("response.output_item.added", output_index=index,
                     item={**call, "arguments": "", "status": "in_progress"})  # fmt: skip
                for piece in pieces(item.arguments, item.pieces):
                    emit("response.function_call_arguments.delta", item_id=call_item, output_index=index, delta=piece)
                if answer.finish == "stop":
                    emit("response.function_call_arguments.done", item_id=call_item, output_index=index,
                         name=item.name, arguments=item.arguments)  # fmt: skip
                done = {**call, "arguments": item.arguments, "status": "completed"}
            case Search():
                search = {"type": "web_search_call", "id": item.id}
                emit("response.output_item.added", output_index=index, item={**search, "status": "in_progress",
                     "action": {"type": "search", "query": ""}})  # fmt: skip
                emit("response.web_search_call.in_progress", item_id=item.id, output_index=index)
                emit("response.web_search_call.completed", item_id=item.id, output_index=index)
                action = {"type": "search", "query": item.query, "queries": [item.query],
                          "sources": [{"type": "url", "url": url} for url, _ in item.results or ()]}  # fmt: skip
                done = {**search, "status": "completed", "action": action}
        output.append(done)
        if not (isinstance(item, Call) and answer.finish != "stop"):
            emit("response.output_item.done", output_index=index, item=done)
    usage = _responses_usage(answer.usage)
    match answer.finish:
        case "stop":
            emit("response.completed", response=response("completed", usage=usage))
        case "length" | "filter":
            reason = "max_output_tokens" if answer.finish == "length" else "content_filter"
            details = {"incomplete_details": {"reason": reason}}
            emit("response.incomplete", response=response("incomplete", usage=usage, **details))
    return events


def _responses_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output,
    }
