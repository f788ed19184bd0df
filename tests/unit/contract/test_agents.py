"""Agents at work: commands, hooks, instructions, metadata, and the registry that holds them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from pai import (
    Agent,
    CommandContext,
    DeclarationError,
    Identity,
    ModelTask,
    Registry,
    RunContext,
    RunOutcome,
    StepPreparation,
)
from pai.contract import listing, manifest_hash
from pai.protocol.errors import NotFound, ValidationFailed


class Args(BaseModel):
    reason: str = ""


class Thread:
    """Keeps what a command did to it."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}

    async def state(self) -> Mapping[str, Any]:
        return {"thread": {"metadata": self.metadata}}

    async def rename(self, title: str) -> None:
        self.metadata["title"] = title

    async def update_metadata(self, changes: Mapping[str, Any], *, private: Mapping[str, Any] | None = None) -> None:
        self.metadata |= {**changes, **(private or {})}

    async def send(self, content: Any, *, queue: Any = None) -> str:
        return "run"


def command_context(thread: Thread) -> CommandContext:
    return CommandContext(thread_id="t", agent="main", identity=Identity("a"), thread=thread)


def run_context(**changes: Any) -> RunContext:
    return RunContext(thread_id="t", run_id="r", agent="main", identity=Identity("a"), **changes)


async def test_a_command_reads_json_and_writes_json() -> None:
    agent = Agent("main", model="demo")

    @agent.command
    async def archive(ctx: CommandContext, args: Args) -> Args:
        """Archive the thread."""
        await ctx.thread.update_metadata({"archived": args.reason})
        return args

    @agent.command(name="count-all")
    def count(*, limit: int = 5) -> int:
        return limit

    @agent.command
    def bare() -> None: ...

    thread = Thread()
    commands = agent.commands
    assert commands["archive"].description == "Archive the thread."
    assert await commands["archive"].call(command_context(thread), {"reason": "old"}) == {"reason": "old"}
    assert thread.metadata == {"archived": "old"}
    assert await commands["count-all"].call(command_context(thread), None) == 5
    assert await commands["count-all"].call(command_context(thread), 7) == 7
    assert await commands["bare"].call(command_context(thread), None) is None
    for name, value in (("archive", None), ("archive", {"reason": 1}), ("count-all", "7"), ("bare", {})):
        with pytest.raises(ValidationFailed) as caught:
            await commands[name].call(command_context(thread), value)
        assert caught.value.errors[0].path.startswith("input")


async def test_instructions_are_a_text_or_made_for_the_run() -> None:
    async def about(ctx: RunContext) -> str:
        return f"You talk to {ctx.identity.subject}."

    assert await Agent("a", model="demo").instructions_for(run_context()) == ""
    assert await Agent("a", model="demo", instructions="Be brief.").instructions_for(run_context()) == "Be brief."
    assert await Agent("a", model="demo", instructions=about).instructions_for(run_context()) == "You talk to a."
    made = Agent("a", model="demo", instructions=lambda ctx: ctx.step)
    with pytest.raises(ValidationFailed, match="returned int, not a text"):
        await made.instructions_for(run_context())


async def test_hooks_run_in_order_and_later_preparations_win() -> None:
    agent = Agent("main", model="demo")
    assert agent.hook("on_run_start") is None
    seen: list[str] = []

    @agent.on_run_start
    async def welcome(ctx: RunContext) -> None:
        ctx.add_message("Today is Saturday.", visibility="model")
        ctx.update_metadata(run={"a": 1})

    @agent.on_run_start
    def more(ctx: RunContext) -> None:
        ctx.update_metadata(run={"b": 2}, private_thread={"c": 3})

    @agent.prepare_step
    async def first(ctx: RunContext) -> StepPreparation:
        return StepPreparation(model="demo", tools=["a"])

    @agent.prepare_step
    def second(ctx: RunContext) -> StepPreparation | None:
        return StepPreparation(tools=["b"]) if ctx.step == 1 else None

    @agent.on_run_finish
    def finished(ctx: RunContext, outcome: RunOutcome) -> None:
        seen.append(outcome.status)

    context = run_context()
    await agent.run_started(context)
    assert [(message.role, message.relation, message.visibility) for message in context.added_messages] == [
        ("system", "context", "model")
    ]
    assert context.metadata_changes == {"run": {"a": 1, "b": 2}, "private_thread": {"c": 3}}
    assert await agent.step_prepared(context) == StepPreparation(model="demo", tools=["b"])
    assert await agent.step_prepared(run_context(step=2)) == StepPreparation(model="demo", tools=["a"])
    await agent.run_finished(context, RunOutcome(status="completed", finish_reason="stop"))
    assert seen == ["completed"]
    assert [name for name in ("on_run_start", "on_action_pending") if agent.hook(name)] == ["on_run_start"]


async def test_a_preparation_of_another_type_is_an_error() -> None:
    agent = Agent("main", model="demo")
    agent.prepare_step(lambda_like)
    with pytest.raises(TypeError, match="not a StepPreparation"):
        await agent.step_prepared(run_context())


def lambda_like(ctx: RunContext) -> Any:
    return "be brief"


class Metadata(BaseModel):
    topic: str = "none"
    stars: int = Field(default=0, ge=0)


def test_metadata_is_completed_by_its_type_and_never_holds_pais_key() -> None:
    typed = Agent("a", model="demo", message_metadata=Metadata).message_metadata
    free = Agent("a", model="demo").message_metadata
    assert typed.complete({"topic": "x"}) == {"topic": "x", "stars": 0}
    assert typed.complete(None) == {"topic": "none", "stars": 0}
    assert free.complete(None) == {}
    assert free.complete({"anything": [1, {"b": None}]}) == {"anything": [1, {"b": None}]}
    wrong: list[tuple[Any, Any]] = [
        (typed, {"more": 1}),
        (typed, {"stars": "1"}),
        (typed, []),
        (free, []),
        (free, {"pai": {}}),
        (typed, {"pai": {}}),
    ]
    for schema, value in wrong:
        with pytest.raises(ValidationFailed) as caught:
            schema.complete(value, at="message.metadata")
        assert caught.value.errors[0].path.startswith("message.metadata")


def test_client_data_is_read_as_declared() -> None:
    assert Agent("a", model="demo", client_data=Args).read_client_data({"reason": "x"}) == Args(reason="x")
    assert Agent("a", model="demo").read_client_data({"any": 1}) == {"any": 1}
    with pytest.raises(ValidationFailed):
        Agent("a", model="demo", client_data=Args).read_client_data({"any": 1})


def test_titles_may_be_made_by_a_model_or_a_function() -> None:
    task = ModelTask(model="demo", instructions="Five words.")
    assert Agent("a", model="demo", thread_titles=task).thread_titles is task
    assert Agent("a", model="demo", thread_titles=None).thread_titles is None


def test_a_registry_holds_each_name_once() -> None:
    one, two = Agent("one", model="demo", queue="slow", title="One"), Agent("two", model="demo")
    registry = Registry(one, two)
    assert (list(registry), len(registry), "one" in registry, "three" in registry) == ([one, two], 2, True, False)
    assert registry.get("two") is two
    assert registry.queues == {"slow"}
    assert listing(one) == {"agent": "one", "title": "One"}
    with pytest.raises(NotFound):
        registry.get("three")
    with pytest.raises(DeclarationError, match="two agents are named 'one'"):
        Registry(one, Agent("one", model="demo"))
    with pytest.raises(DeclarationError, match="one by one"):
        Registry([one])  # type: ignore[arg-type]


def test_the_hash_of_a_manifest_changes_with_it() -> None:
    def agent(description: str) -> Agent:
        agent = Agent("a", model="demo")
        agent.client_tool("pick", description=description)
        return agent

    assert manifest_hash(agent("x")) == manifest_hash(agent("x")) != manifest_hash(agent("y"))


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(f"from pai import Agent, Registry\n{text}\n")


def test_a_registry_is_loaded_from_the_working_directory(application: Path) -> None:
    write_module(application, "loaded_agents", "agent = Agent('mine', model='demo')\nregistry = Registry(agent)")
    assert list(Registry.load("loaded_agents:registry")) == list(Registry.load("loaded_agents:agent"))


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("", "no_colon", "write `module:attribute`"),
        ("", ":registry", "write `module:attribute`"),
        ("", "no_such_module:registry", "there is no module 'no_such_module'"),
        ("", "broken_one:registry", "has no attribute 'registry'"),
        ("registry = {}", "broken_two:registry", "is a dict"),
        ("import no_such_package", "broken_three:registry", "imports 'no_such_package', which is not installed"),
        ("1 / 0", "broken_four:registry", "failed with ZeroDivisionError"),
        ("def", "broken_five:registry", "failed with SyntaxError"),
        ("agent = Agent('a b', model='demo')", "broken_six:agent", "must be an id"),
    ],
)
def test_what_cannot_be_loaded_says_why(application: Path, text: str, path: str, message: str) -> None:
    write_module(application, path.partition(":")[0] or "unused", text)
    if path.startswith("no_such"):
        (application / "no_such_module.py").unlink()
    with pytest.raises(DeclarationError, match=message):
        Registry.load(path)
