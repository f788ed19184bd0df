"""The model for tests and benchmarks says what it is told."""

import asyncio

import pytest

from pai.models import FinishReason, Model, ModelError, ScriptedModel, Turn
from pai.models.chunks import text, tool_call
from support.model_calls import chunks_of, of_type, request, text_of
from support.waiting import wait_until


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel([]), Model)


async def test_it_plays_one_turn_per_call() -> None:
    model = ScriptedModel(["one", tool_call("c", "t", {"a": 1}, deltas=3), Turn(chunks=text(["tw", "o"]))])
    assert text_of((await chunks_of(model))[0]) == "one"
    chunks, result = await chunks_of(model)
    assert len(of_type(chunks, "tool-input-delta")) == 3
    assert result.finish_reason == FinishReason.tool_calls
    assert text_of((await chunks_of(model))[0]) == "two"
    with pytest.raises(ModelError, match="no turn left"):
        await chunks_of(model)
    assert len(model.requests) == 4


async def test_a_function_answers_each_request() -> None:
    model = ScriptedModel(lambda asked: asked.message_id)
    assert text_of((await chunks_of(model))[0]) == "m1"


async def test_it_waits_for_its_gate_in_the_middle_of_the_answer() -> None:
    gate = asyncio.Event()
    seen: list[str] = []

    async def consume() -> None:
        async with ScriptedModel([Turn(chunks=text(["a", "b"]), gate=gate, gate_at=2)]).stream(request()) as stream:
            async for chunk in stream:
                seen.append(chunk["type"])  # noqa: PERF401 - watched while it grows

    task = asyncio.create_task(consume())
    await wait_until(lambda: len(seen) == 2)
    gate.set()
    await task
    assert len(seen) == 4


async def test_it_fails_where_it_is_told_to() -> None:
    broken = Turn(chunks=text(["a", "b"]), error=ModelError("no", retryable=True), error_at=2)
    async with ScriptedModel([broken]).stream(request()) as stream:
        seen = [await anext(stream), await anext(stream)]
        with pytest.raises(ModelError, match="no"):
            await anext(stream)
        with pytest.raises(RuntimeError):
            _ = stream.result
    assert len(seen) == 2
