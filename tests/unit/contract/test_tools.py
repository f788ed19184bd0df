"""Tools: what the model gives them, what they give back, and what they do in between, without a worker."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from pai import Agent, Rehearsal, Suspension, ToolContext, ToolData, ToolError
from pai.contract import ToolInputInvalid, ToolKind, ToolOutputInvalid, Undeclared
from pai.contract.tool import Tool
from pai.protocol.errors import ValidationFailed


class Draft(BaseModel):
    title: str


class Decision(BaseModel):
    approved: bool


class Progress(BaseModel):
    percent: int


approval = Suspension("approval", input=Draft, resume=Decision)
second = Suspension("second", resume=int)
agent = Agent("main", model="demo", ui_data={"chart": list[int]}, client_data=Draft)


@agent.tool
def add(left: int, right: int = 2) -> int:
    """Add two numbers.

    They may be negative.
    """
    return left + right


@agent.tool
async def later(day: date, draft: Draft | None = None) -> date:
    return day


@agent.tool
async def wrong() -> int:
    return "many"  # type: ignore[return-value]


@agent.tool(data={"progress": ToolData(Progress)})
async def count(ctx: ToolContext, to: int) -> AsyncIterator[int]:
    for number in range(to):
        await ctx.data("progress", Progress(percent=number))
        yield number


@agent.tool(suspensions=[approval, second])
async def publish(ctx: ToolContext, title: str) -> str:
    slug = await ctx.step("slug", slug_of, title)
    decision = await ctx.suspend(approval, Draft(title=slug))
    number = await ctx.suspend(second)
    await ctx.write_data("chart", [number], id="c1")
    return f"{slug} {decision.approved} {number} {ctx.tries}"


async def slug_of(title: str) -> str:
    return title.lower()


@agent.tool(data={"progress": Progress}, suspensions=[approval])
def in_thread(ctx: ToolContext, title: str) -> bool:
    ctx.wait(ctx.data("progress", Progress(percent=1)))
    ctx.wait(ctx.step("slug", slug_of, title))
    return ctx.wait(ctx.suspend(approval, Draft(title=title))).approved


@agent.tool(suspensions=[Suspension("other")])
async def careless(ctx: ToolContext, what: str) -> Any:
    match what:
        case "data":
            await ctx.data("nothing", 1)
        case "suspension":
            await ctx.suspend(approval, Draft(title=""))
        case "another suspension of that name":
            await ctx.suspend(Suspension("other"))
        case "ui_data":
            await ctx.write_data("nothing", 1)
        case "bad ui_data":
            await ctx.write_data("chart", ["a"])
        case "wait":
            return ctx.wait(ctx.write_data("chart", []))
        case "cancelled":
            return ctx.cancelled
        case "client_data":
            return ctx.client_data
        case "error":
            raise ToolError("No.", code="NO", detail={"a": 1})
        case _:
            pass
    return None


def test_the_docstring_is_the_description_and_the_signature_the_schema() -> None:
    tool = agent.tools["add"]
    assert tool.description == "Add two numbers.\n\nThey may be negative."
    assert tool.input_schema == {
        "type": "object",
        "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 2}},
        "required": ["left"],
        "additionalProperties": False,
    }
    assert tool.output_schema == {"type": "integer"}
    assert (tool.is_async, tool.is_generator, tool.takes_context, tool.retry_safe) == (False, False, False, False)


def test_a_generator_declares_what_it_yields() -> None:
    tool = agent.tools["count"]
    assert tool.is_generator
    assert tool.takes_context
    assert tool.output_schema == {"type": "integer"}
    assert list(tool.input_schema["properties"]) == ["to"]


def test_a_tool_without_a_return_annotation_gives_any_json() -> None:
    other = Agent("other", model="demo")

    @other.tool
    async def loose(name: str):  # type: ignore[no-untyped-def]
        return {"name": name}

    assert other.tools["loose"].output_schema == {}
    assert other.tools["loose"].dump_output({"a": (1, 2)}) == {"a": [1, 2]}


def test_a_tool_that_may_run_twice_says_so() -> None:
    other = Agent("other", model="demo")
    other.tool(max_attempts=3, queue="slow")(slug_of)
    tool = other.tools["slug_of"]
    assert (tool.retry_safe, tool.max_attempts, tool.queue) == (True, 3, "slow")


def test_input_becomes_keyword_arguments_and_defaults_stay_the_functions() -> None:
    assert agent.tools["add"].validate_input({"left": 1}) == {"left": 1}
    arguments = agent.tools["later"].validate_input({"day": "2026-01-31", "draft": {"title": "a"}})
    assert arguments == {"day": date(2026, 1, 31), "draft": Draft(title="a")}


@pytest.mark.parametrize(
    ("tool", "value", "path"),
    [
        ("add", None, ""),
        ("add", [], ""),
        ("add", "{}", ""),
        ("add", {}, "left"),
        ("add", {"left": "1"}, "left"),
        ("add", {"left": True}, "left"),
        ("add", {"left": 1, "more": 1}, "more"),
        ("add", {"parameter_0": 1}, "left"),
        ("later", {"day": "2026-01-31", "draft": {"title": "a", "more": 1}}, "draft.more"),
    ],
)
def test_wrong_input_says_where_so_that_the_model_can_correct_it(tool: str, value: Any, path: str) -> None:
    with pytest.raises(ToolInputInvalid, match=f"The input of {tool} is not valid") as caught:
        agent.tools[tool].validate_input(value)
    assert path in [error.path for error in caught.value.errors]


async def test_wrong_output_is_the_tools_fault() -> None:
    with pytest.raises(ToolOutputInvalid, match="The output of wrong is not valid"):
        await Rehearsal(agent, "wrong").run({})


def test_tools_of_others_keep_their_json() -> None:
    other = Agent("other", model="demo")
    client = other.client_tool("pick", input=Draft, output=Decision, data={"preview": str})
    external = other.external_tool("ticket", description="Open a ticket.")
    assert (client.kind, external.kind) == (ToolKind.client, ToolKind.external)
    assert client.action_name() == "pick.output"
    assert client.validate_input({"title": "a"}) == {"title": "a"}
    assert client.validate_output({"approved": True}) == Decision(approved=True)
    assert client.data["preview"].client_writable
    assert external.validate_input({"any": [1]}) == {"any": [1]}
    assert external.validate_output(None) is None
    with pytest.raises(ToolInputInvalid):
        external.validate_input([])
    with pytest.raises(ToolInputInvalid):
        client.validate_input({"title": "a", "more": 1})
    with pytest.raises(TypeError, match="has no function"):
        client.call(None, {})


@pytest.mark.parametrize("value", [None, {}, {"approved": "true"}, {"approved": True, "more": 1}, [], "yes"])
def test_a_resume_payload_must_be_what_was_declared(value: Any) -> None:
    with pytest.raises(ValidationFailed):
        approval.validate_resume(value, at="response.payload")


def test_a_suspension_reads_and_writes_its_input() -> None:
    assert approval.dump_input(Draft(title="a")) == {"title": "a"}
    assert approval.validate_input({"title": "a"}) == Draft(title="a")
    assert Suspension("anything").validate_resume([1, None]) == [1, None]


async def test_a_sync_tool_and_a_generator_are_run_and_their_output_is_checked() -> None:
    assert await Rehearsal(agent, "add").run({"left": 1}) == 3
    counting = Rehearsal(agent, "count")
    assert await counting.run({"to": 3}) == 2
    assert counting.outputs == [0, 1, 2]
    assert counting.tool_data == {"progress": {"percent": 2}}


async def test_a_suspended_tool_is_entered_again_and_what_was_done_is_not_done_twice() -> None:
    rehearsal = Rehearsal(agent, "publish")
    assert await rehearsal.run({"title": "ABC"}) is None
    assert rehearsal.pending == ("approval", {"title": "abc"})
    rehearsal.answers["approval"] = {"approved": True}
    assert await rehearsal.run({"title": "ABC"}) is None
    assert rehearsal.pending == ("second", None)
    rehearsal.answers["second"] = 7
    assert await rehearsal.run({"title": "ABC"}) == "abc True 7 3"
    assert rehearsal.pending is None
    assert rehearsal.steps == ["slug"]
    assert rehearsal.data_parts == [{"type": "data-chart", "data": [7], "transient": False, "id": "c1"}]


async def test_an_invalid_answer_never_reaches_the_tool() -> None:
    with pytest.raises(ValidationFailed):
        await Rehearsal(agent, "publish", answers={"approval": {"approved": "true"}}).run({"title": "a"})


async def test_a_sync_tool_waits_for_effects_from_its_thread() -> None:
    rehearsal = Rehearsal(agent, "in_thread")
    assert await rehearsal.run({"title": "ABC"}) is None
    rehearsal.answers["approval"] = {"approved": True}
    assert await rehearsal.run({"title": "ABC"}) is True
    assert rehearsal.tool_data == {"progress": {"percent": 1}}
    assert rehearsal.steps == ["slug"]


@pytest.mark.parametrize("what", ["data", "suspension", "another suspension of that name", "ui_data"])
async def test_a_tool_uses_only_what_it_declares(what: str) -> None:
    with pytest.raises(Undeclared, match="does not declare"):
        await Rehearsal(agent, "careless").run({"what": what})


async def test_data_parts_are_checked_against_the_agents_types() -> None:
    rehearsal = Rehearsal(agent, "careless")
    with pytest.raises(ValidationFailed):
        await rehearsal.run({"what": "bad ui_data"})
    assert rehearsal.data_parts == []


async def test_waiting_on_the_loop_itself_is_an_error_instead_of_a_deadlock() -> None:
    with pytest.raises(RuntimeError, match="await the effect"):
        await Rehearsal(agent, "careless").run({"what": "wait"})


async def test_a_tool_sees_its_caller_and_whether_it_is_stopped() -> None:
    rehearsal = Rehearsal(agent, "careless", client_data={"title": "a"})
    assert await rehearsal.run({"what": "client_data"}) == {"title": "a"}
    assert await rehearsal.run({"what": "cancelled"}) is False
    rehearsal.stopping = True
    assert await rehearsal.run({"what": "cancelled"}) is True


async def test_a_tool_error_carries_what_people_may_see() -> None:
    with pytest.raises(ToolError) as caught:
        await Rehearsal(agent, "careless").run({"what": "error"})
    assert (caught.value.message, caught.value.code, caught.value.detail) == ("No.", "NO", {"a": 1})


async def test_a_step_gives_its_result_as_json_reads_it_on_the_first_run_too() -> None:
    other = Agent("other", model="demo")

    async def typed() -> Draft:
        return Draft(title="a")

    @other.tool
    async def steps(ctx: ToolContext) -> list[str]:
        loose = await ctx.step("loose", lambda: (1, date(2026, 1, 31)))
        draft = await ctx.step("typed", typed)
        keyword = await ctx.step("keyword", slug_of, title="ABC")
        return [repr(loose), repr(draft), keyword]

    assert await Rehearsal(other, "steps").run({}) == ["[1, '2026-01-31']", "Draft(title='a')", "abc"]


async def test_a_step_whose_result_is_no_json_fails() -> None:
    other = Agent("other", model="demo")

    @other.tool
    async def steps(ctx: ToolContext) -> None:
        await ctx.step("opaque", object)

    with pytest.raises(ValidationFailed, match="opaque"):
        await Rehearsal(other, "steps").run({})


async def test_only_server_tools_can_be_rehearsed() -> None:
    other = Agent("other", model="demo")
    other.client_tool("pick", input=Draft)
    with pytest.raises(TypeError, match="nothing to run"):
        await Rehearsal(other, "pick").run({"title": "a"})


async def test_except_exception_does_not_swallow_a_suspension() -> None:
    other = Agent("other", model="demo")

    @other.tool(suspensions=[approval])
    async def greedy(ctx: ToolContext) -> str:
        try:
            await ctx.suspend(approval, Draft(title="a"))
        except Exception:
            return "swallowed"
        return "approved"

    rehearsal = Rehearsal(other, "greedy")
    assert await rehearsal.run({}) is None
    assert rehearsal.pending == ("approval", {"title": "a"})


def test_a_context_outside_of_a_loop_cannot_wait() -> None:
    tool: Tool = agent.tools["add"]
    rehearsal = Rehearsal(agent, "add")
    context = rehearsal.context()
    assert context.tool is tool
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="a running event loop"):
        context.wait(coroutine)
    coroutine.close()


async def test_a_rehearsal_answers_what_is_asked_at_once_one_after_the_other() -> None:
    asks = Agent("asks", model="demo")

    @asks.tool(suspensions=[approval, Suspension("reason")])
    async def both(ctx: ToolContext) -> str:
        """Ask two things at once."""
        reason = ctx.tool.suspensions["reason"]
        first, other = await asyncio.gather(ctx.suspend(approval, Draft(title="a")), ctx.suspend(reason))
        return f"{first.approved} {other}"

    rehearsal = Rehearsal(asks, "both")
    assert await rehearsal.run({}) is None
    assert rehearsal.pending == ("approval", {"title": "a"})
    rehearsal.answers["approval"] = {"approved": True}
    assert await rehearsal.run({}) is None
    assert rehearsal.pending == ("reason", None)
    rehearsal.answers["reason"] = "because"
    assert await rehearsal.run({}) == "True because"
