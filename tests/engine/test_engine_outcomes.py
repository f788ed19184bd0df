"""Every way in which a call can end leaves messages that the AI SDK validates and that every provider accepts."""

import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from engine_parts import Engine, calls_of

from pai.models.chunks import reasoning, text, tool_call, tool_input_start
from pai.models.convert import convert_to_model_messages
from pai.models.scripted import Turn
from support.servers import missing
from support.strict_provider import accepted_by_all
from support.waiting import wait_until

JAVASCRIPT = Path(__file__).parents[1] / "js"
YES = {"approved": True}


async def submitted(engine: Engine, refs: list[dict[str, Any]]) -> None:
    for ref in refs:
        await engine.submit(ref, 5 if ref["toolName"] == "ticket" else YES)


async def cancelled(engine: Engine, refs: list[dict[str, Any]]) -> None:
    for ref in refs:
        await engine.respond(ref, {"type": "cancel", "reason": "no time"})


async def failed(engine: Engine, refs: list[dict[str, Any]]) -> None:
    error = {"message": "It broke \N{PILE OF POO}", "code": "BROKE", "detail": {"deep": [None, {"a": 1}]}}
    for ref in refs:
        await engine.respond(ref, {"type": "fail", "error": error})


async def timed_out(engine: Engine, refs: list[dict[str, Any]]) -> None:
    await cancelled(engine, [ref for ref in refs if ref["toolName"] not in ("ask", "ticket")])
    await engine.make_due()


async def stopped(engine: Engine, refs: list[dict[str, Any]]) -> None:
    if refs:
        await engine.stop(refs[0]["threadId"], reason="enough")


async def superseded(engine: Engine, refs: list[dict[str, Any]]) -> None:
    await engine.send("instead", thread=refs[0]["threadId"], queue={"mode": "steer"})


async def mixed(engine: Engine, refs: list[dict[str, Any]]) -> None:
    await submitted(engine, refs[:2])
    await cancelled(engine, refs[2:3])
    await failed(engine, refs[3:4])
    await stopped(engine, refs[4:])


async def interrupted(engine: Engine, refs: list[dict[str, Any]]) -> None:
    """The answer re-enters the tool, and the worker dies in it."""
    engine.stage.values["gated"] = True
    count = engine.stage.count("publish")
    await submitted(engine, refs)
    await wait_until(lambda: engine.stage.count("publish") > count)
    await engine.lapse()
    engine.stage.gate("publish a").set()


OUTCOMES = [submitted, cancelled, failed, timed_out, stopped, superseded, mixed, interrupted]
CODES = {
    "submitted": set(),
    "cancelled": {"cancelled"},
    "failed": {"BROKE"},
    "timed_out": {"cancelled", "timeout"},
    "stopped": {"stopped"},
    "superseded": {"superseded"},
    "mixed": {"cancelled", "BROKE", "stopped"},
    "interrupted": {"interrupted"},
}
CALLS = (
    ("publish", {"title": "a"}),
    ("pick", {"title": "b"}),
    ("ask", {}),
    ("ticket", {}),
    ("publish_twice", {"title": "c"}),
)


async def transcript(
    engine: Engine, outcome: Callable[[Engine, list[dict[str, Any]]], Awaitable[None]]
) -> list[dict[str, Any]]:
    """A conversation in which calls that wait end in this way, and one more turn after it."""
    thread = outcome.__name__
    calls = [one for index, call in enumerate(CALLS) for one in tool_call(f"c{index}", *call)]
    snapshot = {"name": "locate", "description": "Where?", "inputSchema": {"type": "object"}, "outputSchema": True}
    calls += tool_call("c5", "locate", {"x": [1]}, dynamic=True)
    engine.turns.append([*reasoning(["I think."], id="r"), *text(["Wait."]), *calls])
    await engine.send("hello", thread=thread, clientTools=[snapshot])
    refs = await engine.actions(thread, count=6)
    if outcome is interrupted:
        refs = refs[:1]
    await outcome(engine, refs)

    async def rests() -> bool:
        row = await engine.thread(thread)
        for ref in row.actions if row.status == "waiting" else ():
            # What the outcome left open: the second suspension of one call, or all that it did not touch.
            await (submitted if outcome is submitted else cancelled)(engine, [ref])
        return row.status == "idle"

    await wait_until(rests, saw=lambda: engine.stage.calls)
    await engine.run("go on", thread=thread)
    state = await engine.state(thread)
    parts = calls_of(state["messages"][1]).values()
    assert all(part["state"] in ("output-available", "output-error") for part in parts), parts
    codes = {part["data"]["code"] for part in state["messages"][1]["parts"] if part["type"] == "data-pai-tool-error"}
    assert codes >= CODES[outcome.__name__], codes
    messages: list[dict[str, Any]] = state["messages"]
    return messages


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        missing("Node.js")
    if not (JAVASCRIPT / "node_modules" / "ai").exists():
        missing("npm's `ai` (run `make js`)")
    return found


def judged(node: str, *transcripts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the AI SDK says: the messages as it validated them, and what it would send to a model."""
    done = subprocess.run(
        [node, "validate.mjs"],
        cwd=JAVASCRIPT,
        input=json.dumps(transcripts),
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


async def test_what_is_stored_passes_the_validator_of_the_ai_sdk_and_all_providers(engine: Engine, node: str) -> None:
    transcripts = [await transcript(engine, outcome) for outcome in OUTCOMES]
    for messages, answer in zip(transcripts, judged(node, *transcripts), strict=True):
        assert "error" not in answer, answer["error"]
        assert answer["messages"] == messages, "nothing is dropped or changed"
        assert answer["modelMessages"] == convert_to_model_messages(messages)
    await accepted_by_all(*transcripts)


async def test_a_call_that_was_stopped_while_its_input_streamed_is_valid_too(engine: Engine, node: str) -> None:
    for gate_at in range(1, 5):
        call = tool_call("c1", "pick", {"title": "a"}, deltas=3)
        engine.turns.append(Turn(chunks=[*text([" ", "\n"]), *call], gate=engine.stage.gate("never"), gate_at=gate_at))
        await engine.send(f"hello {gate_at}")
        await wait_until(lambda gate_at=gate_at: len(engine.model.requests) == gate_at)
        await engine.stop()
        await engine.idle()
    engine.turns.append([tool_input_start("c9", "pick"), *tool_call("c8", "echo", {"words": "x"})])
    await engine.run("cut")
    messages = (await engine.state())["messages"]
    [answer] = judged(node, messages)
    assert "error" not in answer, answer["error"]
    await accepted_by_all(messages)


@pytest.mark.parametrize("name", ["", "n" * 100_000, "a\n\x07b", "functions.add x", "7days"])
async def test_a_call_of_a_tool_that_a_model_made_up_is_valid_for_every_provider(engine: Engine, name: str) -> None:
    engine.turns.append(tool_call("functions.add:0", name, {"x": 1}))
    await engine.run()
    messages = (await engine.state())["messages"]
    assert calls_of(messages[1])["functions.add:0"]["state"] == "output-error"
    await accepted_by_all(messages)
