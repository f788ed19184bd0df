"""Providers that refuse every history that the real ones refuse: the bodies that reach them are checked by their rules.

The rules are those of the public references: each call has exactly one result directly after it, no result without a
call, roles take turns, nothing is empty, inputs are objects, ids are unique, ids and names have the characters and the
length that are allowed, thinking keeps its signature.
"""

import itertools
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pai.models import ModelRequest, resolve_model
from pai.models.adapter import PydanticAIModel
from support.fake_providers import PROVIDERS, FakeProvider, fake_provider, text_reply

MODELS = {
    "openai": "gpt-6-luna",
    "openai-chat": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "google": "gemini-3.8-flash",
}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_GOOGLE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")


class Refused(AssertionError):
    """What a provider would answer with status 400."""


class StrictProviders:
    """All four, with models that are connected to them."""

    def __init__(self, connected: Mapping[str, tuple[FakeProvider, PydanticAIModel]]) -> None:
        self._connected = connected

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["StrictProviders"]:
        async with AsyncExitStack() as stack:
            connected = {}
            for provider in PROVIDERS:
                fake = await stack.enter_async_context(fake_provider(text_reply("ok")))
                name, url = f"{provider}:{MODELS[provider]}", fake.base_url(provider)
                model = resolve_model(name, base_url=url, api_key="sk-test")
                assert isinstance(model, PydanticAIModel)
                stack.push_async_callback(model.aclose)
                connected[provider] = (fake, model)
            yield cls(connected)

    async def accept(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Calls the models with these messages. Raises Refused."""
        for provider, (fake, model) in self._connected.items():
            request = ModelRequest(messages=messages, message_id="m", run_id="r", tools=())
            async with model.stream(request) as stream:
                async for _ in stream:
                    pass
            check(provider, fake.bodies[-1])


async def accepted_by_all(*transcripts: Sequence[Mapping[str, Any]]) -> None:
    """Sends stored messages to all four, with one more user message. Raises Refused."""
    after: dict[str, Any] = {"id": "after", "role": "user", "parts": [{"type": "text", "text": "and then?"}]}
    async with StrictProviders.open() as providers:
        for messages in transcripts:
            await providers.accept([*messages, after])


def check(provider: str, body: Mapping[str, Any]) -> None:
    """Raises Refused."""
    rules = {"openai": _responses, "openai-chat": _chat, "anthropic": _anthropic, "google": _google}
    try:
        rules[provider](body)
    except Refused as refused:
        raise Refused(f"{provider}: {refused}\n{json.dumps(body, indent=1)}") from None


def _refuse_if(wrong: object, why: str) -> None:
    if wrong:
        raise Refused(why)


def _turns(roles: Sequence[str], *, user: str, model: str) -> None:
    _refuse_if(not roles or roles[0] != user, "the first turn is not the user's")
    for before, after in itertools.pairwise(roles):
        _refuse_if(before == after, f"two turns of {before} follow each other")
    _refuse_if(set(roles) - {user, model}, f"unknown roles in {roles}")


def _object(text: str, what: str) -> None:
    _refuse_if(not isinstance(json.loads(text), dict), f"the arguments of {what} are no object")


def _unique(ids: Sequence[str], what: str) -> None:
    _refuse_if(len(set(ids)) != len(ids), f"{what} are not unique: {ids}")


def _named(name: str, rule: re.Pattern[str] = _NAME) -> None:
    _refuse_if(not rule.match(name), f"the name {name[:100]!r}")


def _identified(id: str) -> None:
    _refuse_if(not _ID.match(id), f"the id {id[:100]!r}")


def _anthropic(body: Mapping[str, Any]) -> None:
    messages = body["messages"]
    _turns([message["role"] for message in messages], user="user", model="assistant")
    called: list[str] = []
    all_ids: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        _refuse_if(not blocks, "content is empty")
        for block in blocks:
            _refuse_if(block["type"] == "text" and not block["text"].strip(), "text must contain non-whitespace")
            _refuse_if(block["type"] == "thinking" and not block.get("signature"), "thinking without its signature")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        _refuse_if(sorted(results) != sorted(called), f"tool_use {called} is answered by {results}")
        first = [block["type"] == "tool_result" for block in blocks]
        _refuse_if(first != sorted(first, reverse=True), "tool results must come first")
        called = []
        for block in blocks:
            if block["type"] == "tool_use":
                _refuse_if(not isinstance(block["input"], dict), "the input of a tool_use is no object")
                _identified(block["id"])
                _named(block["name"])
                called.append(block["id"])
        all_ids += called
    _refuse_if(called, f"tool_use {called} has no result")
    _unique(all_ids, "tool_use ids")


def _chat(body: Mapping[str, Any]) -> None:
    open_calls: list[str] = []
    ids: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            _refuse_if(message["tool_call_id"] not in open_calls, "a tool message without a preceding call")
            open_calls.remove(message["tool_call_id"])
            continue
        _refuse_if(open_calls, f"tool_calls {open_calls} are not followed by tool messages")
        calls = message.get("tool_calls") or []
        _refuse_if(not message.get("content") and not calls, f"an empty message of {message['role']}")
        for call in calls:
            _object(call["function"]["arguments"], call["function"]["name"])
            _identified(call["id"])
            _named(call["function"]["name"])
            open_calls.append(call["id"])
        ids += open_calls
    _refuse_if(open_calls, f"tool_calls {open_calls} are not followed by tool messages")
    _unique(ids, "tool call ids")


def _responses(body: Mapping[str, Any]) -> None:
    items = body["input"]
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    _unique(calls, "call ids")
    _refuse_if(sorted(calls) != sorted(outputs), f"calls {calls} have outputs {outputs}")
    pending: set[str] = set()
    for index, item in enumerate(items):
        match item.get("type"):
            case "function_call":
                _object(item["arguments"], item["name"])
                _identified(item["call_id"])
                _named(item["name"])
                pending.add(item["call_id"])
            case "function_call_output":
                _refuse_if(item["call_id"] not in pending, "an output before its call")
                pending.discard(item["call_id"])
            case "reasoning":
                follower = items[index + 1] if index + 1 < len(items) else {}
                made = follower.get("type") in ("function_call", "reasoning", "message", "web_search_call")
                alone = not made and follower.get("role") != "assistant"
                _refuse_if(item.get("id") and alone, "a reasoning item without the item that follows it")
            case _:
                _refuse_if(not item.get("content"), "an empty item")
                _refuse_if(item.get("role") == "user" and pending, f"calls {pending} without outputs")


def _google(body: Mapping[str, Any]) -> None:
    contents = body["contents"]
    # Function responses are a turn of their own, before what the user says.
    turns = [content for content in contents if not any("functionResponse" in part for part in content["parts"])]
    _refuse_if(not contents or contents[0]["role"] != "user", "the first turn is not the user's")
    for before, after in itertools.pairwise(contents):
        _refuse_if(before["role"] == after["role"] and before in turns, "two turns of one role follow each other")
    called: list[str] = []
    for content in contents:
        _refuse_if(not content["parts"], "no parts")
        for part in content["parts"]:
            _refuse_if(part.get("text") == "", "an empty text")
            if "functionCall" in part:
                _named(part["functionCall"]["name"], _GOOGLE_NAME)
        answered = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        _refuse_if(answered != called, f"function calls {called} are answered by {answered}")
        called = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
    _refuse_if(called, f"function calls {called} have no response")
