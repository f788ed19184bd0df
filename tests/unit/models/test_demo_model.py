"""The built-in model shows everything the backend does, without a key and without a network."""

import re
from datetime import timedelta
from typing import Any

import pytest

from pai.models import DemoModel, FinishReason, ModelError, ToolDefinition
from support.model_calls import chunks_of, of_type, output, request, stored, text_of, types, user


def tool(name: str, *, dynamic: bool = False, **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name=name, description="", input_schema=schema, dynamic=dynamic)


TOOLS = (
    tool("get_weather", city={"type": "string"}),
    tool("publish_post", title={"type": "string"}, body={"type": "string"}),
    tool("pick_file", dynamic=True),
    tool("show_progress", steps={"type": "integer", "minimum": 3}),
)


@pytest.fixture
def demo() -> DemoModel:
    return DemoModel(delay=timedelta(0))


async def asked(demo: DemoModel, *messages: Any, tools: Any = TOOLS) -> tuple[list[dict[str, Any]], Any]:
    given = [user(message) if isinstance(message, str) else message for message in messages]
    return await chunks_of(demo, request(*given, tools=tools))


@pytest.mark.parametrize(
    ("said", "name", "input"),
    [
        ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("weather", "get_weather", {"city": "Paris"}),
        ("publish Hello world", "publish_post", {"title": "Hello world", "body": "A post about Hello world."}),
        ("please pick a file", "pick_file", {}),
        ("show progress", "show_progress", {"steps": 3}),
        ('call get_weather {"city": "Rome"}', "get_weather", {"city": "Rome"}),
        ("call show_progress", "show_progress", {"steps": 3}),
    ],
)
async def test_it_calls_the_tool_that_was_asked_for(demo: DemoModel, said: str, name: str, input: Any) -> None:
    chunks, result = await asked(demo, said)
    (call,) = of_type(chunks, "tool-input-available")
    assert (call["toolName"], call["input"]) == (name, input)
    assert result.finish_reason == FinishReason.tool_calls
    assert ("dynamic" in call) == (name == "pick_file")


async def test_it_streams_word_by_word(demo: DemoModel) -> None:
    chunks, result = await asked(demo, "hello there")
    assert len(of_type(chunks, "text-delta")) > 10
    assert "hello there" in text_of(chunks)
    assert result.usage.total_tokens
    assert result.finish_reason == FinishReason.stop


async def test_it_thinks_when_told_to(demo: DemoModel) -> None:
    chunks, _ = await asked(demo, "think about it")
    assert types(chunks)[0] == "reasoning-start"
    assert of_type(chunks, "text-delta")


async def test_it_counts(demo: DemoModel) -> None:
    chunks, _ = await asked(demo, "count to 500")
    assert text_of(chunks).split() == [str(number) for number in range(1, 501)]


async def test_several_lines_are_several_calls_at_once_and_then_waits(demo: DemoModel) -> None:
    said = 'call get_weather {"city": "A"}\ncall get_weather {"city": "B"}\nthen call get_weather {"city": "C"}'
    chunks, _ = await asked(demo, said)
    calls = of_type(chunks, "tool-input-available")
    assert [call["input"]["city"] for call in calls] == ["A", "B"]
    first = stored(chunks, *(output(call["toolCallId"], "warm") for call in calls))
    chunks, _ = await asked(demo, said, first)
    (call,) = of_type(chunks, "tool-input-available")
    assert call["input"] == {"city": "C"}
    second = stored(chunks, output(call["toolCallId"], "cold"), id="m2")
    chunks, result = await asked(demo, said, first, second)
    assert "cold" in text_of(chunks)
    assert "warm" in text_of(chunks)
    assert result.finish_reason == FinishReason.stop


async def test_it_says_how_a_call_went(demo: DemoModel) -> None:
    chunks, _ = await asked(demo, "weather in Paris")
    (call,) = of_type(chunks, "tool-input-available")
    error = {"type": "tool-output-error", "toolCallId": call["toolCallId"], "errorText": "stormy"}
    chunks, _ = await asked(demo, "weather in Paris", stored(chunks, error))
    assert "stormy" in text_of(chunks)


async def test_a_tool_that_is_not_there_is_called_anyway_when_named(demo: DemoModel) -> None:
    chunks, _ = await asked(demo, "call nobody {}")
    assert of_type(chunks, "tool-input-available")[0]["toolName"] == "nobody"


async def test_without_tools_it_explains_what_to_try(demo: DemoModel) -> None:
    chunks, _ = await asked(demo, "weather in Paris", tools=())
    assert of_type(chunks, "tool-input-available") == []
    assert "demo model" in text_of(chunks)


@pytest.mark.parametrize(
    ("tools", "said", "not_said"),
    [
        ((), ['"count to 100"', "There are no tools here."], ["weather", "progress", "call"]),
        (TOOLS[:1], ['"weather in Paris"', 'call get_weather {"city":"demo"}'], ["publish", "pick", "progress"]),
        (TOOLS, ['"show progress"', '"publish a post about tea"', "call get_weather"], ["no tools"]),
        (
            (*TOOLS, tool("buy", count={"exclusiveMinimum": 2, "type": "integer"})),
            ['call buy {"count":3}'],
            ["no tools"],
        ),
        (
            (tool("odd", code={"type": "string", "pattern": "^[A-Z]$"}),),
            ['"call TOOL {json}"'],
            ["call odd", "weather"],
        ),
        ((tool("odd", code={"type": "string", "pattern": "^[A-Z]$"}), TOOLS[1]), ["call publish_post {"], ["call odd"]),
        ((tool("lone", code={"default": "\ud800"}),), ['"call TOOL {json}"'], ["call lone"]),
        ((tool("day", on={"type": "string", "format": "date"}),), ['call day {"on":"2030-01-31"}'], ["weather"]),
    ],
)
async def test_it_suggests_what_the_tools_allow(
    demo: DemoModel, tools: Any, said: list[str], not_said: list[str]
) -> None:
    chunks, _ = await asked(demo, "hello", tools=tools)
    text = text_of(chunks)
    assert all(each in text for each in said), text
    assert not any(each in text for each in not_said), text
    for line in re.findall(r"^call .*", text, re.MULTILINE):
        chunks, _ = await asked(demo, line, tools=tools)
        assert of_type(chunks, "tool-input-available"), line


async def test_it_fails_when_told_to(demo: DemoModel) -> None:
    with pytest.raises(ModelError):
        await asked(demo, "fail")


async def test_it_makes_an_input_for_any_schema(demo: DemoModel) -> None:
    schema = {
        "type": "object",
        "$defs": {"Kind": {"enum": ["big", "small"]}, "Loop": {"$ref": "#/$defs/Loop"}},
        "properties": {
            "kind": {"$ref": "#/$defs/Kind"},
            "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
            "deep": {"type": "object", "properties": {"x": {"const": 5}}, "required": ["x"]},
            "loop": {"$ref": "#/$defs/Loop"},
        },
        "required": ["kind", "maybe", "list", "deep", "loop"],
    }
    chunks, _ = await asked(demo, "call odd", tools=[ToolDefinition(name="odd", description="", input_schema=schema)])
    made = of_type(chunks, "tool-input-available")[0]["input"]
    assert made == {"kind": "big", "maybe": 1, "list": [True, True], "deep": {"x": 5}, "loop": None}


@pytest.mark.parametrize("said", ["", "call x {broken", "\0\ud800", "call " + "{" * 1000, "🎉" * 1000])
async def test_nothing_that_a_user_says_breaks_it(demo: DemoModel, said: str) -> None:
    chunks, _ = await asked(demo, said)
    assert types(chunks)[-1] == "text-end"
