"""The trusted surface over HTTP: who reaches it, for whom it acts, and what it answers to bad input."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from api_parts import HELLO, ServedApi, served
from starlette.requests import Request

from pai import Agent, Registry, TriggerContext, TriggerInput
from pai.protocol.errors import DeclarationError
from pai.protocol.identity import Identity
from pai.settings import Settings

BASE = "/api/pai/main"
OPS = {"x-user": "ops"}
FOR_ANN = {**OPS, "x-pai-owner": "ann"}
NOTE = {"message": {"role": "system", "parts": [{"type": "text", "text": "note"}]}}

TRUSTED = [
    ("get", "/api/pai/threads", None),
    ("post", f"{BASE}/threads/t/messages", NOTE),
    ("post", f"{BASE}/threads/t/messages/lookup", {"messageIds": ["m"]}),
    ("patch", f"{BASE}/threads/t/messages/visibility", {"messageIds": ["m"], "visibility": "none"}),
    ("get", f"{BASE}/threads/t/metadata", None),
    ("patch", f"{BASE}/threads/t/metadata", {"metadata": {"a": 1}}),
    ("get", f"{BASE}/threads/t/runs/r/metadata", None),
    ("patch", f"{BASE}/threads/t/runs/r/metadata", {"metadata": {"a": 1}}),
    ("post", f"{BASE}/triggers/remind", {}),
]


async def resolve(request: Request) -> Identity | None:
    user = request.headers.get("x-user")
    return None if user is None else Identity(subject=user, trusted=user == "ops")


def registry() -> Registry:
    agent = Agent("main", model="demo")

    @agent.trigger("remind", on_call=True)
    async def remind(ctx: TriggerContext, about: str = "it") -> TriggerInput:
        return TriggerInput(text=f"remember {about}", hidden=True, thread_id=ctx.thread_id or "reminders")

    @agent.trigger("scheduled", cron="0 9 * * *", owner="ann")
    async def scheduled() -> str:
        return "good morning"

    return Registry(agent, Agent("other", model="demo"))


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[ServedApi]:
    named = settings.model_copy(update={"identity": "test_api_trusted:resolve"})
    async with served(named, registry()) as running:
        yield running


async def call(api: ServedApi, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return await api.client.request(
        method, path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


async def sent(api: ServedApi, user: str = "ann", thread: str = "t") -> dict[str, Any]:
    answer = await api.client.post(f"{BASE}/threads/{thread}/send", json=HELLO, headers={"x-user": user})
    assert answer.status_code == 202
    return dict(answer.json())


@pytest.mark.parametrize(("method", "path", "body"), TRUSTED)
async def test_an_ordinary_caller_is_refused_whether_or_not_the_thread_is_there(
    api: ServedApi, method: str, path: str, body: Any
) -> None:
    await sent(api)
    for target in (path, path.replace("/t/", "/missing/")):
        answer = await call(api, method, target, body, x_user="ann")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await call(api, method, path, body)).status_code == 401


async def test_an_ordinary_caller_names_no_owner_on_any_route(api: ServedApi) -> None:
    await sent(api, "bob")
    for path in (f"{BASE}/threads", f"{BASE}/threads/t", BASE, f"{BASE}/heads/watch"):
        answer = await call(api, "get", path, x_user="ann", x_pai_owner="bob")
        assert answer.status_code == 403, path


@pytest.mark.parametrize("owner", ["", "/", "a/", "/b", "a/b/c", "%ff", "x" * 1200])
async def test_an_owner_that_is_none_is_refused(api: ServedApi, owner: str) -> None:
    answer = await call(api, "get", f"{BASE}/threads", x_user="ops", x_pai_owner=owner)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")


async def test_a_trusted_caller_acts_on_the_threads_of_the_owner_it_names(api: ServedApi) -> None:
    await sent(api)
    for owner in ("ann", "default/ann", "def%61ult/a%6En"):
        assert (await call(api, "get", f"{BASE}/threads/t", x_user="ops", x_pai_owner=owner)).status_code == 200
    for owner in ("bob", "other/ann"):
        assert (await call(api, "get", f"{BASE}/threads/t", x_user="ops", x_pai_owner=owner)).status_code == 404
    assert (await call(api, "get", f"{BASE}/threads/t", x_user="ops")).status_code == 404
    stopped = await api.client.post(f"{BASE}/threads/t/stop", json={}, headers=FOR_ANN)
    assert stopped.json()["run"]["status"] == "cancelled"


async def test_messages_are_added_looked_up_shown_and_hidden(api: ServedApi) -> None:
    await sent(api)
    keyed = {**FOR_ANN, "idempotency-key": "k"}
    path = f"{BASE}/threads/t/messages"
    body = {**NOTE, "visibility": "model", "privateMetadata": {"by": "ops"}, "messageId": "note1"}
    first = await api.client.post(path, json=body, headers=keyed)
    again = await api.client.post(path, json=body, headers=keyed)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (first.json()["visibility"], first.json()["privateMetadata"]) == ("model", {"by": "ops"})
    mine = (await call(api, "get", f"{BASE}/threads/t", x_user="ann")).text
    assert "note1" not in mine
    assert "note1" in (await api.client.get(f"{BASE}/threads/t", headers=FOR_ANN)).text
    shown = {"messageIds": ["note1"], "visibility": "all"}
    assert (await api.client.patch(f"{path}/visibility", json=shown, headers=FOR_ANN)).status_code == 202
    mine = (await call(api, "get", f"{BASE}/threads/t", x_user="ann")).text
    assert "note1" in mine
    assert "privateMetadata" not in mine
    found = await api.client.post(f"{path}/lookup", json={"messageIds": ["no", "note1"]}, headers=FOR_ANN)
    assert [message["id"] for message in found.json()["messages"]] == ["note1"]


async def test_metadata_is_changed_and_read(api: ServedApi) -> None:
    run_id = (await sent(api))["run"]["runId"]
    change = {"metadata": {"a": {"b": [1, None]}}, "privateMetadata": {"case": 7}}
    for path in (f"{BASE}/threads/t/metadata", f"{BASE}/threads/t/runs/{run_id}/metadata"):
        changed = await api.client.patch(path, json=change, headers=FOR_ANN)
        assert changed.status_code == 200, changed.text
        read = await api.client.get(path, headers=FOR_ANN)
        assert read.json() == changed.json()
        assert {name: read.json()[name] for name in change} == change
    state = (await call(api, "get", f"{BASE}/threads/t", x_user="ann")).json()
    assert state["thread"]["metadata"] == state["runs"][0]["metadata"] == change["metadata"]
    assert "case" not in str(state)


async def test_a_list_across_owners_and_agents(api: ServedApi) -> None:
    await sent(api)
    await sent(api, "bob")
    everything = (await call(api, "get", "/api/pai/threads", x_user="ops")).json()["items"]
    assert {(item["owner"], item["agent"], item["hidden"]) for item in everything} == {
        ("default/ann", "main", False),
        ("default/bob", "main", False),
    }
    assert len((await api.client.get("/api/pai/threads", headers=FOR_ANN)).json()["items"]) == 1
    for query in ("agent=other", "hidden=true", "status=idle", "category=x", "parentThreadId=x"):
        assert (await call(api, "get", f"/api/pai/threads?{query}", x_user="ops")).json()["items"] == [], query
    for query in ("limit=0", "limit=x", "pageToken=x", "hidden=x", "status=x"):
        assert (await call(api, "get", f"/api/pai/threads?{query}", x_user="ops")).status_code == 422, query


async def test_a_trigger_is_called_for_an_owner_once_per_key(api: ServedApi) -> None:
    keyed = {**FOR_ANN, "idempotency-key": "k"}
    path = f"{BASE}/triggers/remind"
    first = await api.client.post(path, json={"input": "tea", "threadId": "t1"}, headers=keyed)
    again = await api.client.post(path, json={"input": "tea", "threadId": "t1"}, headers=keyed)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json()
    assert first.json()["run"]["initiator"] == "trigger"
    other = await api.client.post(path, json={"input": "milk", "threadId": "t1"}, headers=keyed)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert (await call(api, "get", f"{BASE}/threads/t1", x_user="ann")).status_code == 404
    state = (await api.client.get(f"{BASE}/threads/t1", headers=FOR_ANN)).json()
    assert state["messages"][0]["metadata"]["pai"]["producer"] == "trigger"
    queued = await api.client.post(path, headers=FOR_ANN, json={"threadId": "t1"})
    assert queued.json()["queueItemId"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("none", {}, 404, "not_found"),
        ("scheduled", {}, 404, "not_found"),
        ("remind", {"input": 7}, 422, "validation_failed"),
        ("remind", {"threadId": "a b"}, 422, "validation_failed"),
        ("remind", {"queue": {"mode": "later"}}, 422, "validation_failed"),
        ("remind", {"what": 1}, 422, "validation_failed"),
    ],
)
async def test_a_trigger_call_that_is_none_starts_nothing(
    api: ServedApi, path: str, body: Any, status: int, code: str
) -> None:
    answer = await api.client.post(f"{BASE}/triggers/{path}", json=body, headers=FOR_ANN)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if status == 404:
        assert answer.json()["what"] == "trigger"
    assert (await call(api, "get", "/api/pai/threads", x_user="ops")).json()["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "messages", {}),
        ("post", "messages", {"message": {"role": "robot", "parts": []}}),
        ("post", "messages", {**NOTE, "visibility": "some"}),
        ("post", "messages", {**NOTE, "messageId": ".."}),
        ("post", "messages", {"message": {"role": "user", "parts": []}}),
        ("post", "messages", {"message": {"role": "user", "parts": [7]}}),
        ("post", "messages", {"message": {**NOTE["message"], "metadata": {"pai": {}}}}),
        ("post", "messages/lookup", {"messageIds": ["m"] * 101}),
        ("post", "messages/lookup", {"messageIds": "m"}),
        ("patch", "messages/visibility", {"messageIds": [], "visibility": "all"}),
        ("patch", "messages/visibility", {"messageIds": ["m"]}),
        ("patch", "metadata", {"metadata": []}),
        ("patch", "metadata", {"metadata": {"pai": 1}}),
        ("patch", "metadata", {"title": "x"}),
    ],
)
async def test_bad_input_changes_nothing(api: ServedApi, method: str, path: str, body: Any) -> None:
    await sent(api)
    before = (await api.client.get(f"{BASE}/threads/t", headers=FOR_ANN)).json()
    answer = await api.client.request(method, f"{BASE}/threads/t/{path}", json=body, headers=FOR_ANN)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text
    assert (await api.client.get(f"{BASE}/threads/t", headers=FOR_ANN)).json() == before


async def test_text_is_cleaned_where_it_enters(api: ServedApi) -> None:
    await sent(api)
    raw = b'{"message":{"role":"user","parts":[{"type":"text","text":"a\\u0000b \\ud83d\\ude00 \\ud83d"}]}}'
    headers = {**FOR_ANN, "content-type": "application/json"}
    answer = await api.client.post(f"{BASE}/threads/t/messages", content=raw, headers=headers)
    assert answer.json()["parts"][0]["text"] == "a\ufffdb \U0001f600 \ufffd"


async def test_an_agent_is_not_named_like_a_route() -> None:
    with pytest.raises(DeclarationError):
        Registry(Agent("threads", model="demo"))
