"""Every route answers what the wire says."""

import asyncio

from api_parts import BASE, HELLO, ServedApi


async def test_the_agents_of_the_server_are_listed(api: ServedApi) -> None:
    answer = await api.client.get("/api/pai")
    assert answer.status_code == 200
    assert answer.json() == {
        "agents": [{"agent": "main", "description": "An agent for tests"}, {"agent": "other"}],
    }


async def test_a_manifest_names_tools_with_their_schemas(api: ServedApi) -> None:
    manifest = (await api.client.get(BASE)).json()
    assert manifest["agent"] == "main"
    assert manifest["protocol"] == {"version": 1, "chunks": "ai-sdk@7.0.173"}
    [tool] = manifest["tools"]
    assert (tool["name"], tool["kind"], tool["description"]) == ("add", "server", "Add two numbers.")
    assert set(tool["inputSchema"]["properties"]) == {"left", "right"}


async def test_a_send_creates_the_thread_and_its_run(api: ServedApi) -> None:
    answer = await api.client.post(f"{BASE}/threads/t1/send", json=HELLO)
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    result = answer.json()
    assert result["run"]["status"] == "running"
    assert result["run"]["admission"] == {"mode": "direct"}
    assert result["revision"] == 1
    [message_id] = result["messageIds"]
    state = await api.snapshot("t1")
    assert state["thread"]["version"] == result["version"]
    assert state["messages"][0]["id"] == message_id
    assert state["messages"][0]["parts"] == [{"type": "text", "text": "hello"}]
    assert state["activeRunId"] == result["run"]["runId"]
    assert state["error"] is None
    assert state["revision"] == 1


async def test_the_same_idempotency_key_gets_the_recorded_answer_with_200(api: ServedApi) -> None:
    key = {"Idempotency-Key": "once"}
    first = await api.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=key)
    again = await api.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=key)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json()


async def test_an_idempotency_key_of_another_request_is_a_conflict(api: ServedApi) -> None:
    key = {"Idempotency-Key": "once"}
    await api.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=key)
    body = {"message": {"parts": [{"type": "text", "text": "something else"}]}}
    answer = await api.client.post(f"{BASE}/threads/t1/send", json=body, headers=key)
    assert answer.status_code == 409
    assert answer.json()["code"] == "idempotency_conflict"


async def test_the_same_message_id_is_one_message(api: ServedApi) -> None:
    first = await api.client.post(f"{BASE}/threads/t1/send", json={**HELLO, "messageId": "m1"})
    again = await api.client.post(f"{BASE}/threads/t1/send", json={**HELLO, "messageId": "m1"})
    assert (first.status_code, again.status_code) == (202, 200)
    other = {"message": {"parts": [{"type": "text", "text": "other"}]}, "messageId": "m1"}
    conflict = await api.client.post(f"{BASE}/threads/t1/send", json=other)
    assert conflict.status_code == 409
    assert conflict.json()["code"] == "message_conflict"


async def test_a_send_to_a_busy_thread_is_refused_with_what_it_is_busy_with(api: ServedApi) -> None:
    run = (await api.send("t1"))["run"]
    answer = await api.client.post(f"{BASE}/threads/t1/send", json=HELLO)
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "thread_busy"
    assert problem["threadStatus"] == "running"
    assert problem["activeRunId"] == run["runId"]
    assert problem["pendingActions"] == []


async def test_parallel_sends_to_a_new_thread_admit_one(api: ServedApi) -> None:
    answers = await asyncio.gather(*(api.client.post(f"{BASE}/threads/t1/send", json=HELLO) for _ in range(20)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [202, *[409] * 19]


async def test_a_run_can_be_read(api: ServedApi) -> None:
    run = (await api.send("t1"))["run"]
    answer = await api.client.get(f"{BASE}/threads/t1/runs/{run['runId']}")
    assert answer.status_code == 200
    assert answer.json()["runId"] == run["runId"]


async def test_stopping_a_thread_cancels_its_run(api: ServedApi) -> None:
    run = (await api.send("t1"))["run"]
    answer = await api.client.post(f"{BASE}/threads/t1/stop", json={"reason": "enough"})
    assert answer.status_code == 202, answer.text
    assert answer.json()["run"]["status"] == "cancelled"
    assert (await api.client.get(f"{BASE}/threads/t1/runs/{run['runId']}")).json()["reason"] == "enough"
    assert (await api.snapshot("t1"))["thread"]["status"] == "idle"


async def test_stopping_needs_no_body(api: ServedApi) -> None:
    await api.send("t1")
    answer = await api.client.post(f"{BASE}/threads/t1/stop")
    assert answer.status_code == 202, answer.text


async def test_a_run_is_stopped_by_its_id_once(api: ServedApi) -> None:
    run_id = (await api.send("t1"))["run"]["runId"]
    answer = await api.client.post(f"{BASE}/threads/t1/runs/{run_id}/stop", json={"reason": "no"})
    assert answer.status_code == 202, answer.text
    again = await api.client.post(f"{BASE}/threads/t1/runs/{run_id}/stop", json={"reason": "no"})
    assert again.status_code == 409
    assert again.json()["code"] == "run_not_active"
    assert again.json()["runStatus"] == "cancelled"


async def test_a_thread_is_renamed(api: ServedApi) -> None:
    await api.send("t1")
    answer = await api.client.patch(f"{BASE}/threads/t1", json={"title": "Holiday plans"})
    assert answer.status_code == 200
    assert answer.json()["title"]["value"] == "Holiday plans"
    assert answer.json()["title"]["source"] == "user"
    assert answer.json()["revision"] == 2


async def test_a_thread_is_deleted_and_deleting_again_is_no_error(api: ServedApi) -> None:
    await api.send("t1")
    for _ in range(2):
        answer = await api.client.delete(f"{BASE}/threads/t1")
        assert answer.status_code == 204
        assert answer.content == b""
    assert (await api.client.get(f"{BASE}/threads/t1")).status_code == 404


async def test_a_deleted_thread_comes_back_as_another_incarnation(api: ServedApi) -> None:
    first = await api.send("t1")
    await api.client.delete(f"{BASE}/threads/t1")
    second = await api.send("t1")
    assert second["version"] != first["version"]
    assert second["revision"] == 1


async def test_threads_are_listed_in_pages_latest_first(api: ServedApi) -> None:
    for number in range(5):
        await api.send(f"t{number}")
    found, token = [], None
    while True:
        page = (
            await api.client.get(f"{BASE}/threads", params={"limit": 2} | ({"pageToken": token} if token else {}))
        ).json()
        found += [item["threadId"] for item in page["items"]]
        token = page.get("nextPageToken")
        if token is None:
            break
    assert found == ["t4", "t3", "t2", "t1", "t0"]


async def test_a_list_is_filtered_by_category_and_status(api: ServedApi) -> None:
    await api.send("t1", thread={"category": "work"})
    await api.send("t2")
    await api.client.post(f"{BASE}/threads/t2/stop")
    by_category = (await api.client.get(f"{BASE}/threads", params={"category": "work"})).json()
    assert [item["threadId"] for item in by_category["items"]] == ["t1"]
    idle = (await api.client.get(f"{BASE}/threads", params={"status": "idle"})).json()
    assert [item["threadId"] for item in idle["items"]] == ["t2"]
    assert (await api.client.get(f"{BASE}/threads", params={"category": "\0"})).json()["items"] == []


async def test_agents_do_not_share_threads(api: ServedApi) -> None:
    await api.send("t1")
    assert (await api.client.get("/api/pai/other/threads/t1")).status_code == 404
    assert (await api.client.get("/api/pai/other/threads")).json() == {"items": []}


async def test_application_json_arrives_as_it_was_sent(api: ServedApi) -> None:
    metadata = {"zeta": 1, "alpha": {"camelCase": [1.5, None], "snake_case": "ü😀"}}
    await api.send(
        "t1", thread={"metadata": {}}, message={"parts": [{"type": "text", "text": "x"}], "metadata": metadata}
    )
    message = (await api.snapshot("t1"))["messages"][0]
    stored = {key: value for key, value in message["metadata"].items() if key != "pai"}
    assert list(stored) == list(metadata)
    assert stored == metadata
