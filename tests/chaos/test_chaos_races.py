"""Requests through two API processes race the runs of two workers: whatever comes first is first for everybody."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from support.board import Board, board
from support.cluster import Cluster
from support.watching import say

THREADS, ROUNDS = 12, 6
"""Of each race: threads at once, and rounds on each of them."""
RUN = 3
"""Revisions of one run after its beginning: two model steps and a tool step."""
TURN = "tell 2 1 call once then tell 3 1"


class Race:
    """Requests of one cluster, through one API process and the other in turn."""

    def __init__(self, http: httpx.AsyncClient, urls: list[str], board: Board, saw: Callable[[], Any]) -> None:
        self.http = http
        self.urls = urls
        self.board = board
        self.saw = saw

    def url(self, number: int) -> str:
        return self.urls[number % 2]

    async def send(self, thread: str, number: int, mode: str) -> dict[str, Any]:
        """-> the result. The message is known by its id."""
        answer = await say(
            self.http, self.url(number), thread, TURN, messageId=f"{thread}-{number}", queue={"mode": mode}
        )
        assert answer.status_code == 202, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def moment(self, thread: str, *, since: int) -> None:
        """Anywhere within the run that goes on since that revision, or once the thread rests."""
        reached = since + random.randint(0, RUN)
        await self.board.reaches(
            thread, lambda seen: seen.revision >= reached or seen.at_rest, since=since, saw=self.saw
        )
        await asyncio.sleep(random.uniform(0, 0.01))

    async def state(self, thread: str, *, since: int) -> dict[str, Any]:
        """Once the thread rests."""
        await self.board.reaches(thread, lambda seen: seen.at_rest, since=since, saw=self.saw)
        state: dict[str, Any] = (await self.http.get(f"{self.urls[0]}/threads/{thread}")).json()
        assert state["thread"]["status"] == "idle"
        return state


def inputs(state: dict[str, Any]) -> list[str]:
    return [message["id"] for message in state["messages"] if message["role"] == "user"]


async def test_steers_and_recalls_through_two_apis_come_before_or_after_the_end_of_a_run_for_everybody(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    """A steer is in the turn that goes on or makes the next; an item is recalled or admitted, never both or neither."""
    other, second = chaos.start_api(), chaos.start_worker()
    api, _ = chaos.pair()
    second.ready()
    steered: Counter[tuple[str, str]] = Counter()
    recalls: Counter[bool] = Counter()

    async def steer(race: Race, thread: str) -> None:
        results = [await race.send(thread, 0, "queue")]
        for number in range(1, ROUNDS + 1):
            sent = results[-1]["revision"]
            now = await race.board.reaches(thread, lambda seen: not seen.queued, since=sent, saw=race.saw)
            await race.moment(thread, since=now.revision)
            results.append(await race.send(thread, number, "steer"))
        state = await race.state(thread, since=results[-1]["revision"])
        runs = state["runs"]
        assert inputs(state) == [f"{thread}-{number}" for number in range(ROUNDS + 1)]
        assert [run["runId"] for run in runs] == [result["run"]["runId"] for result in results]
        assert [run["inputMessageIds"] for run in runs] == [[message] for message in inputs(state)]
        assert {run["status"] for run in runs} == {"completed"}
        for before, after in itertools.pairwise(runs):
            # What was admitted as a steer ended the turn before, unless that had said its last word already.
            steered[before["finishReason"], after["admission"]["mode"]] += 1
        ends = {run["runId"]: run["finishReason"] for run in runs}
        answered = Counter(
            message["metadata"]["pai"]["runId"] for message in state["messages"] if message["role"] == "assistant"
        )
        assert answered == {run: 1 if reason == "steered" else 2 for run, reason in ends.items()}
        assert ends[runs[-1]["runId"]] == "stop"

    async def recall(race: Race, thread: str) -> None:
        admitted: list[str] = []
        recalled: list[str] = []
        numbers = itertools.count()
        for _ in range(ROUNDS):
            result = await race.send(thread, next(numbers), "queue")
            while "queueItemId" not in result:
                admitted += result["messageIds"]
                result = await race.send(thread, next(numbers), "queue")
            await race.moment(thread, since=result["revision"])
            item = f"threads/{thread}/queue/{result['queueItemId']}"
            answers = [await http.delete(f"{url}/{item}") for url in random.sample(race.urls, 2)]
            statuses = [answer.status_code for answer in answers]
            assert statuses in ([202, 404], [409, 409]), [answer.text for answer in answers]
            was_recalled = statuses[0] == 202
            (recalled if was_recalled else admitted).extend(result["messageIds"])
            recalls[was_recalled] += 1
        state = await race.state(thread, since=result["revision"])
        assert inputs(state) == admitted
        assert [run["inputMessageIds"] for run in state["runs"] if run["status"] == "completed"] == [
            [message] for message in admitted
        ]
        assert Counter(run["status"] for run in state["runs"]) == Counter(
            completed=len(admitted), cancelled=len(recalled)
        )

    async with board(chaos.database_url) as seen:
        race = Race(http, [api.url, other.ready().url], seen, chaos.output)
        await asyncio.gather(*(play(race, f"{play.__name__}{n}") for n in range(THREADS) for play in (steer, recall)))
    assert len(steered) > 1, "every steer met its run at the same place"
    assert set(recalls) == {True, False}
    assert "Traceback" not in chaos.output(), chaos.output()
