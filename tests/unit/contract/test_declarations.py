"""What an agent may declare, and what is refused at import with a message that names the place and the fix."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from pai import Agent, CommandContext, DeclarationError, RunContext, Suspension, ToolContext, ToolData, TriggerContext
from pai.contract.json_schema import JsonSchema
from pai.contract.manifest import manifest


class Draft(BaseModel):
    title: str


class Needed(BaseModel):
    colour: str


class Taken(BaseModel):
    pai: str


class Opaque:
    pass


def new_agent(**options: Any) -> Agent:
    return Agent("main", model="demo", **options)


async def tool_function(ctx: ToolContext, title: str) -> str:
    return title


async def trigger_function(ctx: TriggerContext) -> str:
    return "go"


def unannotated(title) -> str:  # type: ignore[no-untyped-def]
    return str(title)


def unannotated_context(ctx, title: str) -> str:  # type: ignore[no-untyped-def]
    return title


def several(ctx: ToolContext, *titles: str) -> str:
    return ""


def keywords(**titles: str) -> str:
    return ""


def positional(title: str, /) -> str:
    return title


def late_context(title: str, ctx: ToolContext) -> str:
    return title


def other_context(ctx: CommandContext, title: str) -> str:
    return title


def field_default(title: str = Field("x")) -> str:
    return title


def opaque_input(thing: Opaque) -> str:
    return ""


def opaque_output() -> Opaque:
    return Opaque()


def callable_input(thing: Callable[[], int]) -> str:
    return ""


def unknown_name(thing: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def sync_generator() -> Any:
    yield 1


def two_inputs(ctx: CommandContext, one: int, two: int) -> None: ...


def hook(ctx: RunContext) -> None: ...


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "an agent's name is an id": (lambda: Agent("a b", model="demo"), "Agent 'a b'.*must be an id"),
    "an agent's name is not empty": (lambda: Agent("", model="demo"), "must be an id"),
    "an agent's name is not a path": (lambda: Agent("..", model="demo"), "must be an id"),
    "an agent's name is no path of the API": (lambda: Agent("threads", model="demo"), "choose another"),
    "a model has a provider": (lambda: Agent("main", model="gpt-5"), "'gpt-5'.*provider:name"),
    "a model has a name": (lambda: Agent("main", model="openai:"), "provider:name"),
    "a model is there": (lambda: Agent("main", model=None), "model must be"),
    "instructions are text": (lambda: new_agent(instructions=3), "instructions must be a text, or a function"),
    "instructions take the run": (lambda: new_agent(instructions=lambda: ""), "takes one parameter, the RunContext"),
    "titles are made by something": (lambda: new_agent(thread_titles="last"), "thread_titles must be"),
    "max_steps is positive": (lambda: new_agent(max_steps=0), "max_steps"),
    "message metadata leaves pai alone": (lambda: new_agent(message_metadata=Taken), "message_metadata.*`pai`.*rename"),
    "thread metadata leaves pai alone": (lambda: new_agent(thread_metadata=Taken), "thread_metadata.*`pai`"),
    "run metadata begins empty": (lambda: new_agent(run_metadata=Needed), "run_metadata begins empty.*needs a default"),
    "metadata is an object": (lambda: new_agent(run_metadata=int), "run_metadata must be an object"),
    "client data has a schema": (
        lambda: new_agent(client_data=Opaque),
        "client_data: Opaque cannot be written as JSON",
    ),
    "ui data is not PAI's": (lambda: new_agent(ui_data={"pai-chart": int}), "'pai-chart'.*reserved; rename"),
    "ui data has a name": (lambda: new_agent(ui_data={"a:b": int}), "'a:b' is no name"),
    "a parameter is annotated": (lambda: new_agent().tool(unannotated), "tool 'unannotated': annotate 'title'"),
    "a context is annotated": (lambda: new_agent().tool(unannotated_context), "annotate 'ctx' with ToolContext"),
    "no *args": (lambda: new_agent().tool(several), "'several': name every parameter"),
    "no **kwargs": (lambda: new_agent().tool(keywords), "'keywords': name every parameter"),
    "no positional-only parameters": (
        lambda: new_agent().tool(positional),
        "'title' is positional-only; remove the `/`",
    ),
    "the context comes first": (lambda: new_agent().tool(late_context), "'ctx' is the context; make it the first"),
    "the context is the right one": (
        lambda: new_agent().tool(other_context),
        "must be a ToolContext, not a CommandContext",
    ),
    "Field is written as Annotated": (lambda: new_agent().tool(field_default), r"Annotated\[..., Field"),
    "an input has a schema": (lambda: new_agent().tool(opaque_input), "'opaque_input': input"),
    "an input is no function": (lambda: new_agent().tool(callable_input), "'callable_input': input"),
    "an output has a schema": (lambda: new_agent().tool(opaque_output), "'opaque_output': output: Opaque"),
    "annotations can be read": (lambda: new_agent().tool(unknown_name), "'unknown_name'.*Nowhere"),
    "generators are async": (lambda: new_agent().tool(sync_generator), "'sync_generator': a generator must be async"),
    "a tool is a function": (lambda: new_agent().tool(3), "decorate a function"),  # type: ignore[call-overload]
    "a tool has a name for providers": (lambda: new_agent().tool(name="no dots.")(tool_function), "is no name"),
    "a lambda needs a name": (lambda: new_agent().tool(lambda: 1), "'<lambda>' is no name"),
    "attempts are positive": (lambda: new_agent().tool(max_attempts=0)(tool_function), "max_attempts"),
    "a timeout is positive": (lambda: new_agent().tool(timeout=timedelta(0))(tool_function), "timeout"),
    "a timeout is a timedelta": (lambda: new_agent().tool(timeout=5)(tool_function), "timeout"),  # type: ignore[call-overload]
    "suspensions differ": (
        lambda: new_agent().tool(suspensions=[Suspension("a"), Suspension("a")])(tool_function),
        "'tool_function': two suspensions are named 'a'",
    ),
    "suspensions are suspensions": (lambda: new_agent().tool(suspensions=["a"])(tool_function), "Suspension"),  # type: ignore[list-item]
    "no suspension is called output": (lambda: Suspension("output"), "choose another name"),
    "a suspension has a name": (lambda: Suspension("a.b"), "is no name"),
    "a suspension has a schema": (lambda: Suspension("a", resume=Opaque), "Suspension 'a': resume"),
    "a suspension's timeout is positive": (lambda: Suspension("a", timeout=timedelta(-1)), "timeout"),
    "tool data has a name": (lambda: new_agent().tool(data={"a:b": int})(tool_function), "'a:b' is no name"),
    "tool data has a schema": (lambda: ToolData(Opaque), "ToolData: Opaque"),
    "a client tool takes an object": (lambda: new_agent().client_tool("pick", input=str), "client tool 'pick'.*object"),
    "an external tool takes an object": (
        lambda: new_agent().external_tool("pick", input=list[int]),
        "external tool 'pick'",
    ),
    "a command takes one input": (lambda: new_agent().command(two_inputs), "'two_inputs': takes one input"),
    "a command gets its own context": (lambda: new_agent().command(tool_function), "must be a CommandContext"),
    "a trigger is fired by something": (
        lambda: new_agent().trigger("daily")(trigger_function),
        "trigger 'daily': nothing ever fires it",
    ),
    "a schedule has an owner": (lambda: new_agent().trigger("daily", cron="@daily")(trigger_function), "`owner`"),
    "a schedule is one": (
        lambda: new_agent().trigger("x", cron="@daily", interval=timedelta(1), owner="a")(trigger_function),
        "either `cron` or `interval`",
    ),
    "a cron expression has five fields": (
        lambda: new_agent().trigger("x", cron="0 9 * *", owner="a")(trigger_function),
        "'0 9 \\* \\*' has 4 fields",
    ),
    "a cron expression comes": (
        lambda: new_agent().trigger("x", cron="0 0 31 2 *", owner="a")(trigger_function),
        "never comes",
    ),
    "a time zone exists": (
        lambda: new_agent().trigger("x", cron="@daily", timezone="Mars/Base", owner="a")(trigger_function),
        "'Mars/Base' is no time zone",
    ),
    "a time zone is no file": (
        lambda: new_agent().trigger("x", cron="@daily", timezone="../etc/passwd", owner="a")(trigger_function),
        "is no time zone",
    ),
    "an interval is at least a second": (
        lambda: new_agent().trigger("x", interval=timedelta(0), owner="a")(trigger_function),
        "at least one second",
    ),
    "a hook gets the run": (lambda: new_agent().on_run_start(trigger_function), "must be a RunContext"),
    "a finish hook gets the outcome": (lambda: new_agent().on_run_finish(hook), "and what happened"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_fails_at_import_and_says_how_to_write_it(case: str) -> None:
    declare, message = WRONG[case]
    with pytest.raises(DeclarationError, match=message):
        declare()


@pytest.mark.parametrize("kind", ["tool", "client_tool", "external_tool", "command", "trigger"])
def test_names_are_declared_once(kind: str) -> None:
    agent = new_agent()

    async def archive(ctx: CommandContext) -> None: ...

    def declare() -> None:
        match kind:
            case "tool":
                agent.tool(name="same")(tool_function)
            case "client_tool":
                agent.client_tool("same", input=Draft)
            case "external_tool":
                agent.external_tool("same", input=Draft)
            case "command":
                agent.command(name="same")(archive)
            case _:
                agent.trigger("same", on_call=True)(trigger_function)

    declare()
    with pytest.raises(DeclarationError, match=r"Agent 'main': two \w+s are named 'same'; rename one"):
        declare()


def test_client_external_and_server_tools_share_their_names() -> None:
    agent = new_agent()
    agent.client_tool("same", input=Draft)
    with pytest.raises(DeclarationError, match="two tools are named 'same'"):
        agent.tool(name="same")(tool_function)


def test_a_decorated_function_is_the_function_itself() -> None:
    agent = new_agent()
    assert agent.tool(tool_function) is tool_function
    assert agent.tool(name="other")(tool_function) is tool_function
    assert agent.trigger("daily", on_call=True)(trigger_function) is trigger_function
    assert agent.on_run_start(hook) is hook
    assert list(agent.tools) == ["tool_function", "other"]


def test_parameters_may_have_names_that_models_have_methods_for() -> None:
    agent = new_agent()

    @agent.tool
    def odd(json: str, copy: int = 1, model_config: bool = False, _private: int = 0, schema: str = "") -> str:
        return json

    tool = agent.tools["odd"]
    assert list(tool.input_schema["properties"]) == ["json", "copy", "model_config", "_private", "schema"]
    assert tool.validate_input({"json": "a", "_private": 3}) == {"json": "a", "_private": 3}


def test_annotated_fields_describe_parameters() -> None:
    agent = new_agent()

    @agent.tool
    def search(limit: Annotated[int, Field(ge=1, description="How many.")] = 5) -> list[str]:
        return []

    declared = agent.tools["search"].input_schema["properties"]["limit"]
    assert declared == {"default": 5, "description": "How many.", "minimum": 1, "type": "integer"}


def test_a_recursive_input_shows_an_object_at_its_root() -> None:
    class Node(BaseModel):
        children: list["Node"] = []

    tool = new_agent().client_tool("grow", input=Node, output=Node)
    assert tool.input_schema["type"] == "object"
    assert tool.validate_input({"children": [{"children": []}]}) == {"children": [{"children": []}]}
    # The root was copied from its definition, and references to that still hold.
    JsonSchema(tool.input_schema).parse({"children": [{"children": []}]})


def test_the_manifest_says_all_that_is_public_and_nothing_private() -> None:
    class Private(BaseModel):
        secret_plan: str = ""

    class Public(BaseModel):
        topic: str = ""

    agent = new_agent(
        thread_metadata=Public,
        message_metadata=Public,
        client_data=Public,
        private_thread_metadata=Private,
        private_run_metadata=Private,
        ui_data={"chart": Draft},
        instructions="the secret_plan",
    )
    agent.tool(
        suspensions=[Suspension("approval", input=Draft, resume=Draft)],
        data={"progress": ToolData(int, client_writable=True)},
    )(tool_function)
    agent.client_tool("pick", input=Draft, output=Draft, description="Pick one.")

    @agent.command
    async def archive(ctx: CommandContext, draft: Draft) -> bool:
        return True

    document = manifest(agent)
    assert "secret_plan" not in json.dumps(document)
    assert document["agent"] == "main"
    assert document["protocol"] == {"version": 1, "chunks": "ai-sdk@7.0.173"}
    assert [(tool["name"], tool["kind"]) for tool in document["tools"]] == [
        ("tool_function", "server"),
        ("pick", "client"),
    ]
    tool = document["tools"][0]
    assert sorted(tool) == ["data", "description", "inputSchema", "kind", "name", "outputSchema", "suspensions"]
    assert sorted(tool["suspensions"][0]) == ["inputSchema", "name", "resumeSchema"]
    assert tool["data"] == [{"name": "progress", "schema": {"type": "integer"}, "clientWritable": True}]
    assert sorted(document["commands"][0]) == ["inputSchema", "name", "outputSchema"]
    assert list(document["uiData"]) == ["chart"]
    assert document["threadMetadata"]["properties"] == {"topic": {"default": "", "type": "string"}}
    assert "runMetadata" not in document
    assert "messageMetadata" in document
    assert "clientData" in document
