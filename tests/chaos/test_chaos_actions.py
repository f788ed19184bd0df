"""Pending actions with real processes: answered at once, by many, through whichever API, after everything died."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from support.answering import YES, pending_refs, respond, rows, submit, waiting
from support.cluster import Cluster
from support.waiting import wait_until
from support.watching import Follower, caught_up, following, outputs, say

IDLE_TIMERS = {"PAI_SWEEP_INTERVAL": "600"}
"""Nothing is brought forward by a sweep, and none changes a row in a comparison."""

LONG = timedelta(seconds=100)


@pytest.fixture
def actions(chaos: Cluster) -> Iterator[Cluster]:
    chaos.environment = {
        **chaos.environment,
        "PAI_AGENTS": "support.waiting_agents:registry",
        "PAI_IDENTITY": "support.waiting_agents:by_header",
    }
    yield chaos
    # A request that nobody expected to fail shows in the logs of the processes.
    assert "Traceback" not in chaos.output(), chaos.output()


class Answerer(Follower):
    """Watches a thread through one API and answers each suspension through another one, as soon as it sees it."""

    def __init__(self, http: httpx.AsyncClient, thread_id: str, *, watched: str, answered: str) -> None:
        super().__init__(http, [watched], thread_id)
        self.answered = answered
        self.statuses: list[int] = []
        self.expected: dict[str, str] = {}

    async def _take(self, url: str, event: dict[str, Any]) -> None:
        await super()._take(url, event)
        if self.version is None or (event["type"] not in ("ready", "reset") and "suspension" not in str(event)):
            return
        for ref in pending_refs(self.shown, outputs=False):
            if ref["toolCallId"] not in self.expected:
                self.expected[ref["toolCallId"]] = ref["actionId"]
                payload = {"approved": True, "comment": ref["actionId"]}
                self.statuses.append((await submit(self._http, self.answered, ref, payload)).status_code)


async def test_what_a_watcher_has_seen_can_be_answered_at_once_through_another_api_five_hundred_times(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    threads, steps, calls = 25, 4, 5
    other = actions.start_api()
    api, _ = actions.pair()
    urls = [api.url, other.ready().url]
    answerers = [
        Answerer(http, f"t{number}", watched=urls[number % 2], answered=urls[1 - number % 2])
        for number in range(threads)
    ]
    text = " then ".join([f"call{' approve' * calls}"] * steps)
    async with following(*answerers):
        for answerer in answerers:
            assert (await say(http, answerer.answered, answerer._thread_id, text)).status_code == 202
        await wait_until(lambda: all(answerer.idle for answerer in answerers), timeout=LONG, saw=actions.output)
    assert [status for answerer in answerers for status in answerer.statuses] == [202] * threads * steps * calls
    for answerer in answerers:
        parts = [part for message in answerer.shown["messages"] for part in message["parts"] if "output" in part]
        assert {part["toolCallId"]: part["output"].split()[1] for part in parts} == answerer.expected


async def test_an_answer_that_does_not_fit_changes_no_row_and_the_action_stays_pending(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    api, _ = actions.pair(**IDLE_TIMERS)
    wrong: list[Any] = [None, {}, {"approved": True, "more": 1}, {"approved": "true"}, {"approved": 1}, [YES], "yes"]
    wrong += [{"approved": True, "comment": "x" * 5_000_000}]
    for tool in ("approve", "pick"):
        await say(http, api.url, tool, f"call {tool}")
        state, [ref] = await waiting(http, api.url, tool, saw=actions.output)
        before = rows(actions.database_url)
        for payload in wrong:
            answer = await respond(http, api.url, ref, {"type": "submit", "payload": payload}, responseId="r")
            assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text[:200]
            assert all(error["path"].startswith("response.payload") for error in answer.json()["errors"])
        missing = {"type": "submit"}
        assert (await respond(http, api.url, ref, missing)).status_code == 422
        assert rows(actions.database_url) == before
        assert (await http.get(f"{api.url}/threads/{tool}")).json() == state
        assert (await submit(http, api.url, ref, responseId="r")).status_code == 202
        await caught_up(http, f"{api.url}/threads/{tool}", saw=actions.output)


async def test_an_action_is_found_by_its_exact_reference_and_its_owner_alone(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    api, _ = actions.pair(**IDLE_TIMERS)
    await say(http, api.url, "u", "tell 1 0")
    await caught_up(http, f"{api.url}/threads/u", saw=actions.output)
    for tool in ("approve", "pick"):
        await say(http, api.url, tool, f"call {tool}")
        _, [ref] = await waiting(http, api.url, tool, saw=actions.output)
        before = rows(actions.database_url)
        wrong = {"unknown key": {**ref, "more": 1}, "another suspension": {**ref, "suspendName": "second"}}
        for field in ref:
            wrong[f"without {field}"] = {key: value for key, value in ref.items() if key != field}
            wrong[f"null {field}"] = {**ref, field: None}
            wrong[f"other {field}"] = {**ref, field: "u"}
            wrong[f"longer {field}"] = {**ref, field: f"{ref[field]}x"}
        answers = {what: await submit(http, api.url, one, thread=tool) for what, one in wrong.items()}
        answers["other thread"] = await submit(http, api.url, ref, thread="u")
        answers["missing thread"] = await submit(http, api.url, ref, thread="nowhere")
        answers["other identity"] = await submit(http, api.url, ref, headers={"x-user": "bob"})
        codes = {what: (answer.status_code, answer.json()["code"]) for what, answer in answers.items()}
        malformed = {f"{how} {field}" for how in ("without", "null") for field in ref} - {
            "without suspendName",
            "null suspendName",
        }
        malformed |= {"unknown key", "other kind", "longer kind"}
        assert codes == {
            what: (422, "validation_failed") if what in malformed else (404, "not_found") for what in codes
        }
        assert rows(actions.database_url) == before
        assert (await submit(http, api.url, ref)).status_code == 202
        await caught_up(http, f"{api.url}/threads/{tool}", saw=actions.output)
        before = rows(actions.database_url)
        late = await submit(http, api.url, ref)
        assert (late.status_code, late.json()["code"]) == (409, "action_not_pending")
        assert late.json()["state"] == ("resumed" if tool == "approve" else "output-available")
        assert rows(actions.database_url) == before


async def test_of_twenty_answers_at_once_through_two_apis_one_takes_effect(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    other = actions.start_api()
    api, _ = actions.pair()
    urls = [api.url, other.ready().url]
    for thread in ("same", "different"):
        await say(http, api.url, thread, "call twice")
        _, [ref] = await waiting(http, api.url, thread, saw=actions.output)
        answers = await asyncio.gather(
            *(
                submit(
                    http,
                    urls[number % 2],
                    ref,
                    {"approved": True, "comment": "same" if thread == "same" else f"c{number}"},
                    responseId="r" if thread == "same" else f"r{number}",
                )
                for number in range(20)
            )
        )
        statuses = sorted(answer.status_code for answer in answers)
        _, [second] = await waiting(http, other.url, thread, saw=actions.output)
        assert second["suspendName"] == "second"
        if thread == "same":
            assert statuses == [200] * 19 + [202]
            assert len({answer.text for answer in answers}) == 1
        else:
            assert statuses == [202] + [409] * 19
            assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"action_not_pending"}
        winner = next(number for number, answer in enumerate(answers) if answer.status_code == 202)
        await submit(http, other.url, second, {"approved": True, "comment": "last"})
        state = await caught_up(http, f"{api.url}/threads/{thread}", saw=actions.output)
        assert outputs(state) == ["same last" if thread == "same" else f"c{winner} last"]
    assert len(actions.traces("between")) == 2, "once for each thread"


async def test_five_calls_of_one_step_are_answered_in_reverse_order_and_each_gets_its_own(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    other = actions.start_api()
    api, _ = actions.pair()
    urls = [api.url, other.ready().url]
    await say(http, api.url, "t", "call approve pick approve ticket approve")
    state, refs = await waiting(http, api.url, "t", count=5, saw=actions.output)
    asked = len(actions.traces("model-*"))
    for number, ref in reversed(list(enumerate(refs))):
        payload = {"approved": True, "comment": f"c{number}"}
        assert (await submit(http, urls[number % 2], ref, payload)).status_code == 202
    state = await caught_up(http, f"{api.url}/threads/t", saw=actions.output)
    expected = [
        {"approved": True, "comment": f"c{number}"} if number % 2 else f"m{number} c{number}" for number in range(5)
    ]
    assert outputs(state) == expected
    assert len(actions.traces("model-*")) == asked + 1, "the model went on once"


async def test_everything_is_started_anew_between_a_suspension_and_its_answer(
    actions: Cluster, http: httpx.AsyncClient
) -> None:
    nodes = [*actions.pair()]
    await say(http, nodes[0].url, "t", "call twice pick then call unstable")
    refs: list[dict[str, Any]] = []
    for index, count, comment in ((0, 2, "one"), (1, 2, "picked"), (0, 1, "two")):
        before, refs = await waiting(http, nodes[0].url, "t", count=count, saw=actions.output)
        for node in nodes:
            node.kill()
        actions.redis.stop()
        actions.redis.start()
        nodes = [*actions.pair()]
        after = (await http.get(f"{nodes[0].url}/threads/t")).json()
        assert {**after, "sequence": 0} == {**before, "sequence": 0}
        ref = refs[index]
        answer = await submit(http, nodes[0].url, ref, {"approved": True, "comment": comment})
        assert answer.status_code == 202
        if ref["name"] == "twice.approval":
            await wait_until(lambda: actions.traces("between"), saw=actions.output)
    await wait_until(lambda: actions.traces("entered"), saw=actions.output)
    _, [ref] = await waiting(http, nodes[0].url, "t", saw=actions.output)
    assert (await submit(http, nodes[0].url, ref)).status_code == 202
    state = await caught_up(http, f"{nodes[0].url}/threads/t", saw=actions.output)
    assert outputs(state) == [
        "one two",
        {"approved": True, "comment": "picked"},
        "At 'approval' the call does something else, or with another input, than before it waited.",
    ]
    assert {name: len(actions.traces(name)) for name in ("before", "between", "after", "applied")} == {
        "before": 1,
        "between": 1,
        "after": 1,
        "applied": 0,
    }
