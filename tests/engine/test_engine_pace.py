"""In which order a worker commits what it has: what somebody waits for goes first."""

from datetime import timedelta

from engine_parts import Engine, text_of

from pai.models.chunks import text, tool_call
from support.waiting import wait_until

LONG = timedelta(hours=1)


async def test_a_complete_answer_is_committed_in_its_turn_and_a_call_at_once(engine: Engine) -> None:
    worker = engine.workers[0]
    engine.post.workers = [worker]
    worker.runner._pace.patience = LONG
    engine.turns += [tool_call("c1", "echo", {"words": "x"}), text(["end"])]

    async def is_streamed() -> bool:
        return text_of((await engine.state())["messages"][-1]) == "end"

    async with worker.runner._pace.place():
        await engine.send()
        await wait_until(lambda: len(engine.model.requests) == 2)
        await wait_until(is_streamed)
        assert (await engine.state())["thread"]["status"] == "running"
    await worker.quiet()
    assert (await engine.state())["thread"]["status"] == "idle"


async def test_where_every_slot_is_taken_no_commit_waits_for_another(engine: Engine) -> None:
    worker = engine.workers[0]
    engine.post.workers = [worker]
    worker.runner._pace.patience = LONG
    worker.runtime.settings = worker.runtime.settings.model_copy(update={"worker_concurrency": 1})
    async with worker.runner._pace.place():
        await engine.run("hi")
    assert (await engine.state())["thread"]["status"] == "idle"
