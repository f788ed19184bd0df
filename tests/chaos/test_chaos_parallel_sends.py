"""Many callers at once, through several processes: one of them wins, and all of them learn the same."""

import asyncio

import httpx

from support.chaos_agents import words
from support.cluster import Cluster
from support.watching import Follower, caught_up, following, say, texts

COUNT = 50


async def test_of_fifty_sends_to_a_new_thread_one_is_accepted_and_the_others_find_it_busy(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    other = chaos.start_api()
    api, _ = chaos.pair()
    urls = [api.url, other.ready().url]
    watcher = Follower(http, urls, "t")
    async with following(watcher):
        answers = await asyncio.gather(
            *(say(http, urls[number % 2], "t", "tell 20 0 held", messageId=f"m{number}") for number in range(COUNT))
        )
        chaos.go()
        state = await caught_up(http, f"{api.url}/threads/t", watcher, saw=chaos.output)
    [accepted] = [answer.json() for answer in answers if answer.status_code == 202]
    refused = [answer.json() for answer in answers if answer.status_code != 202]
    assert {problem["code"] for problem in refused} == {"thread_busy"}
    assert {problem["activeRunId"] for problem in refused} == {accepted["run"]["runId"]}
    assert len(refused) == COUNT - 1
    assert state["thread"]["version"] == accepted["version"]
    assert [run["runId"] for run in state["runs"]] == [accepted["run"]["runId"]]
    assert [message["id"] for message in state["messages"] if message["role"] == "user"] == accepted["messageIds"]
    assert texts(state) == [words(20)]


async def test_the_same_message_fifty_times_is_one_run_and_one_answer(chaos: Cluster, http: httpx.AsyncClient) -> None:
    other = chaos.start_api()
    api, _ = chaos.pair()
    urls = [api.url, other.ready().url]
    answers = await asyncio.gather(
        *(say(http, urls[number % 2], "t", "tell 20 0 held", messageId="m") for number in range(COUNT))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * (COUNT - 1) + [202]
    assert len({answer.text for answer in answers}) == 1
    chaos.go()
    state = await caught_up(http, f"{api.url}/threads/t", saw=chaos.output)
    assert len(state["runs"]) == 1
    assert texts(state) == [words(20)]
    late = await say(http, other.url, "t", "tell 20 0 held", messageId="m")
    assert (late.status_code, late.text) == (200, answers[0].text)
