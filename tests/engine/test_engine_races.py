"""Two things at once, at hundreds of random moments: whatever comes first, what comes second is told so."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_parts import calls_of, said, text_of
from racing import Racing, said_by_people

from pai.engine import api
from pai.protocol.errors import ActionNotPending, NotFound, QueueItemAdmitted, ThreadBusy
from pai.protocol.requests import MutationResult
from pai.settings import Settings

RUN = 3
"""Revisions of one run after the send: the commits of its three steps."""


@pytest.fixture
async def racing(engine_settings: Settings) -> AsyncIterator[Racing]:
    async with Racing(engine_settings).racing() as running:
        yield running


async def test_a_steer_against_the_end_of_a_run_is_answered_once_and_in_turn(racing: Racing) -> None:
    async def play(thread: str, rounds: int) -> None:
        replies = [await racing.send("m0", thread=thread)]
        for number in range(1, rounds + 1):
            await racing.reaches(lambda now: not now.queued, thread)
            await racing.moment(thread, revisions=RUN)
            runtime = racing.runtimes[number % 2]
            replies.append(await racing.send(f"m{number}", thread=thread, runtime=runtime, queue={"mode": "steer"}))
        state = await racing.ended(thread)
        inputs, runs = [f"m{number}" for number in range(rounds + 1)], state["runs"]
        assert said_by_people(state) == inputs
        assert [run["runId"] for run in runs] == [reply.result.run.run_id for reply in replies]
        assert {run["status"] for run in runs} == {"completed"}
        reasons = [run["finishReason"] for run in runs]
        assert set(reasons[:-1]) <= {"stop", "steered"}
        assert reasons[-1] == "stop"
        told = [text_of(message) for message in state["messages"] if message["role"] == "assistant"]
        answered = [f"re: {words}" for words, reason in zip(inputs, reasons, strict=True) if reason == "stop"]
        assert [words for words in told if words] == answered
        # Nobody steers what has ended, and what was steered did not end by itself.
        ways = {(after["admission"]["mode"], reason) for after, reason in zip(runs[1:], reasons, strict=False)}
        assert ("direct", "steered") not in ways

    await racing.rounds(play)


async def test_a_queued_item_is_recalled_or_admitted_never_both_and_never_neither(racing: Racing) -> None:
    async def play(thread: str, rounds: int) -> None:
        expected: dict[str, str] = {}
        """What the runs were sent, of those that were not recalled."""
        recalled_runs: set[str] = set()

        async def queued(words: str) -> MutationResult:
            """Sends until something waits for its turn."""
            while True:
                result: MutationResult = (await racing.send(words, thread=thread, queue={"mode": "queue"})).result
                assert result.run is not None
                expected[result.run.run_id] = words
                if result.queue_item_id is not None:
                    return result

        for number in range(rounds):
            result = await queued(f"m{number}")
            assert result.run is not None
            assert result.queue_item_id is not None
            await racing.moment(thread, revisions=RUN + 1)
            try:
                await api.recall(racing.runtimes[1], racing.caller(), thread, result.queue_item_id)
                recalled = True
            except QueueItemAdmitted:
                recalled = False
            if recalled:
                del expected[result.run.run_id]
                recalled_runs.add(result.run.run_id)
        with pytest.raises(NotFound if recalled else QueueItemAdmitted):
            await api.recall(racing.runtime, racing.caller(), thread, result.queue_item_id)
        state = await racing.ended(thread)
        assert said_by_people(state) == list(expected.values())
        statuses = {run["runId"]: run["status"] for run in state["runs"]}
        assert statuses == dict.fromkeys(expected, "completed") | dict.fromkeys(recalled_runs, "cancelled")

    await racing.rounds(play)


async def test_an_answer_against_a_stop_is_taken_or_refused_and_the_run_ends_once(racing: Racing) -> None:
    seen: set[tuple[bool, str]] = set()

    async def answered(ref: dict[str, Any], *, stop_first: bool) -> bool:
        if stop_first:
            await racing.stop(ref["threadId"])
        await asyncio.sleep(random.uniform(0, 0.01))
        try:
            await racing.submit(ref, {"approved": True}, runtime=racing.runtimes[1])
        except ActionNotPending:
            return False
        return True

    async def stopped(thread: str) -> None:
        await asyncio.sleep(random.uniform(0, 0.01))
        await racing.stop(thread)

    async def play(thread: str, rounds: int) -> None:
        taken: list[bool] = []
        for number in range(rounds):
            assert (await racing.send(f"ask m{number}", thread=thread)).result.queue_item_id is None
            (ref,) = (await racing.reaches(lambda now: now.status == "waiting", thread)).actions
            # Some rounds are no race, so that both come first at least once.
            answer = answered(ref, stop_first=number % 4 == 0)
            if number % 4 == 1:
                taken.append(await answer)
                await stopped(thread)
            else:
                taken.append((await asyncio.gather(answer, stopped(thread)))[0])
            assert racing.now(thread).status == "idle"
        state = await racing.ended(thread)
        assert said_by_people(state) == [f"ask m{number}" for number in range(rounds)]
        statuses = [run["status"] for run in state["runs"]]
        (*parts,) = (part for message in state["messages"] for part in calls_of(message).values())
        outputs = [part.get("output") for part in parts]
        assert outputs == [{"approved": True} if was else None for was in taken]
        assert {part["state"] for part in parts} <= {"output-available", "output-error"}
        seen.update(zip(taken, statuses, strict=True))

    await racing.rounds(play)
    assert {was for was, _ in seen} == {True, False}
    assert (False, "completed") not in seen, "a run that was stopped before it was answered goes on"


async def test_of_two_first_sends_to_one_new_id_each_makes_a_run_or_is_told_that_it_is_busy(racing: Racing) -> None:
    async def one(thread: str, number: int) -> MutationResult | ThreadBusy:
        await asyncio.sleep(random.uniform(0, 0.01))
        try:
            reply = await racing.send(f"say {number}", thread=thread, runtime=racing.runtimes[number])
        except ThreadBusy as busy:
            return busy
        result: MutationResult = reply.result
        return result

    async def play(thread: str, rounds: int) -> None:
        results = await asyncio.gather(one(thread, 0), one(thread, 1))
        accepted = [result for result in results if isinstance(result, MutationResult)]
        assert accepted
        assert len({result.version for result in accepted}) == 1
        state = await racing.ended(thread)
        assert len(said_by_people(state)) == len(accepted) == len(state["runs"])

    await racing.rounds(play, per_thread=1)


async def test_two_people_who_choose_the_same_new_id_have_a_thread_each(racing: Racing) -> None:
    async def one(thread: str, subject: str, number: int) -> MutationResult:
        await asyncio.sleep(random.uniform(0, 0.01))
        caller = racing.caller(subject)
        return (await api.send(racing.runtimes[number], caller, thread, said(f"say by {subject}"))).result

    async def play(thread: str, rounds: int) -> None:
        ann, bob = await asyncio.gather(one(thread, "ann", 0), one(thread, "bob", 1))
        assert ann.version != bob.version
        for subject in ("ann", "bob"):
            assert said_by_people(await racing.ended(thread, subject=subject)) == [f"say by {subject}"]

    await racing.rounds(play, per_thread=1)
