"""What the demo model says: a pure function of the conversation and the declared tools."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pai.contract.json_schema import JsonSchema
from pai.models.errors import ModelError
from pai.models.example import example
from pai.models.model import ModelRequest, ToolDefinition
from pai.protocol.errors import ValidationFailed
from pai.protocol.json import dumps

_CALL = re.compile(r"\s*(then\s+)?call\s+([A-Za-z0-9_-]+)\s*(\{.*\})?\s*\Z", re.IGNORECASE | re.DOTALL)
_COUNT = re.compile(r"\bcount to (\d{1,6})\b", re.IGNORECASE)
_WEATHER = re.compile(r"\bweather\b(?:.*?\b(?:in|for|at)\s+([^?.!,\n]+))?", re.IGNORECASE)
_PUBLISH = re.compile(r"\bpublish\b\s*(.*)", re.IGNORECASE | re.DOTALL)
_LONGEST_COUNT = 100_000
_INTRODUCTION = "I am the demo model; I need no key and no network."
_SUGGESTIONS = ("weather in Paris", "publish a post about tea", "pick a file", "show progress")
_SEVERAL = 'Several such lines call several at once, and a line that begins with "then" waits for those before.'


@dataclass(frozen=True)
class Call:
    tool: ToolDefinition
    input: Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    thoughts: str = ""
    text: str = ""
    calls: Sequence[Call] = field(default_factory=list)


def reply(request: ModelRequest) -> Reply:
    """The demo's next step. Raises ModelError when the user asked for a failure."""
    said, settled = _turn(request.messages)
    tools = {tool.name: tool for tool in request.tools}
    steps = _steps(said, tools)
    taken = len(settled)
    if taken < len(steps):
        return steps[taken]
    if settled:
        return Reply(text=_summary([part for message in settled for part in message]))
    return _spoken(said, request.tools)


def _turn(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[list[Mapping[str, Any]]]]:
    """The latest user's text, and the tool parts of each assistant message after it that has any."""
    said, settled = "", list[list[Mapping[str, Any]]]()
    for message in messages:
        parts = [part for part in message.get("parts", ()) if isinstance(part, Mapping)]
        if message.get("role") == "user":
            said = "\n".join(part.get("text", "") for part in parts if part.get("type") == "text")
            settled = []
        elif message.get("role") == "assistant":
            calls = [part for part in parts if "toolCallId" in part]
            if calls:
                settled.append(calls)
    return said, settled


def _steps(said: str, tools: Mapping[str, ToolDefinition]) -> list[Reply]:
    """The steps with tool calls that the text asks for."""
    lines = [line for line in said.splitlines() if line.strip()]
    asked = [_CALL.match(line) for line in lines] if len(lines) > 1 else [_CALL.match(said)]
    if asked and all(asked):
        return _called([match for match in asked if match], tools)
    lowered = said.lower()
    thoughts = "The user wants me to think first, so I think. " if "think" in lowered else ""
    if (weather := _WEATHER.search(said)) and (tool := tools.get("get_weather")):
        city = (weather[1] or "Paris").strip()
        return [
            Reply(thoughts=thoughts, text=f"Let me look at the weather in {city}.", calls=[_filled(tool, city=city)])
        ]
    if (publish := _PUBLISH.search(said)) and (tool := tools.get("publish_post")):
        title = publish[1].strip() or "Hello"
        call = _filled(tool, title=title[:80], body=f"A post about {title}.")
        return [Reply(thoughts=thoughts, text="I have a draft; it needs your approval.", calls=[call])]
    if "pick" in lowered and "file" in lowered and (tool := tools.get("pick_file")):
        call = _filled(tool, prompt="Which file?", purpose="To look at it.")
        return [Reply(thoughts=thoughts, text="Please pick a file.", calls=[call])]
    if "progress" in lowered and (tool := next((tool for name, tool in tools.items() if "progress" in name), None)):
        return [Reply(thoughts=thoughts, text="This takes a moment.", calls=[_filled(tool)])]
    return []


def _called(asked: Sequence[re.Match[str]], tools: Mapping[str, ToolDefinition]) -> list[Reply]:
    """One step for the lines up to a `then`, and one for each `then`."""
    steps: list[list[Call]] = []
    for match in asked:
        tool = tools.get(match[2]) or ToolDefinition(name=match[2], description="", input_schema={})
        try:
            call = Call(tool, orjson.loads(match[3])) if match[3] else _filled(tool)
        except orjson.JSONDecodeError:
            return []
        if match[1] or not steps:
            steps.append([])
        steps[-1].append(call)
    return [Reply(calls=calls) for calls in steps]


def _spoken(said: str, tools: Sequence[ToolDefinition]) -> Reply:
    lowered = said.lower()
    if count := _COUNT.search(said):
        return Reply(text=" ".join(str(number) for number in range(1, min(int(count[1]), _LONGEST_COUNT) + 1)))
    if lowered.strip() in ("fail", "fail please"):
        raise ModelError("The demo model failed because it was asked to.")
    if "think" in lowered:
        return Reply(
            thoughts="The user wants me to think. I weigh one word against the other, and find both good.",
            text="I have thought about it: yes.",
        )
    return Reply(text=f'You said: "{said.strip() or "nothing"}". {_INTRODUCTION} {_advice(tools)}')


def _advice(tools: Sequence[ToolDefinition]) -> str:
    """What these tools allow to be said; every suggestion works as it stands."""
    named = {tool.name: tool for tool in tools}
    suggested = {line: steps for line in _SUGGESTIONS if (steps := _steps(line, named))}
    advice = f"Try {', '.join(map(_quoted, [*suggested, 'think about it']))} or {_quoted('count to 100')}."
    if not tools:
        return f"{advice} There are no tools here."
    advice = f"{advice} Tools here: {', '.join(named)}."
    covered = {call.tool.name for steps in suggested.values() for step in steps for call in step.calls}
    ready = (line for tool in sorted(tools, key=lambda tool: tool.name in covered) if (line := _call_of(tool)))
    if (line := next(ready, None)) is None:
        return f'{advice} "call TOOL {{json}}" calls any of them. {_SEVERAL}'
    return f"{advice} This line calls one:\n\n{line}\n\n{_SEVERAL}"


def _quoted(line: str) -> str:
    return f'"{line}"'


def _call_of(tool: ToolDefinition) -> str | None:
    """The line that calls the tool with the simplest input; None when its schema wants more than can be guessed."""
    try:
        made = dumps(JsonSchema(tool.input_schema).parse(_filled(tool).input))
    except (ValidationFailed, TypeError):
        return None
    line = f"call {tool.name} {made.decode()}"
    return line if _CALL.match(line) else None


def _summary(parts: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(_told(part) for part in parts)


def _told(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type", ""))
    name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            shown = output if isinstance(output, str) else orjson.dumps(output).decode()
            return f"{name} answered: {shown if len(shown) <= 500 else shown[:500] + '...'}."
        case "output-error":
            return f"{name} did not work: {part.get('errorText', '')}"
        case "output-denied":
            return f"{name} was not allowed."
        case _:
            return f"{name} has no result."


def _filled(tool: ToolDefinition, **known: Any) -> Call:
    """A call whose required fields are the known values of those names, or the simplest value the schema allows."""
    properties = tool.input_schema.get("properties", {})
    required = tool.input_schema.get("required", [])
    given = {name: value for name, value in known.items() if name in properties}
    made = {name: example(properties.get(name), tool.input_schema) for name in required if name not in given}
    return Call(tool, {**given, **made})
