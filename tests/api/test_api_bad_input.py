"""Bad input gets a typed problem, changes nothing, and is never a 500."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from api_parts import BASE, HELLO, ServedApi, served

from pai.settings import Settings

SEND = f"{BASE}/threads/t1/send"
JSON = {"content-type": "application/json"}


def problem_of(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "about:blank"
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["title"]
    assert problem["detail"]
    return dict(problem)


async def nothing_changed(api: ServedApi) -> None:
    assert (await api.client.get(f"{BASE}/threads")).json() == {"items": []}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"message": NaN}',
        b'{"message": {"parts": [{"type": "text", "text": "x"}]}, "clientData": Infinity}',
        b'{"message": {"parts": [{"type": "text", "text": "x"}]}, "clientData": 1e999}',
        b'{"message": {"parts": [{"type": "text", "text": "\xff"}]}}',
        b'{"message": {"parts": [{"type": "text", "text": "\xed\xa0\x80"}]}}',
        b'{"message": {"parts": [{"type": "text", "text": "a\x00b"}]}}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"message": {"parts": [{"type": "text", "text": "x"}]}, "clientData": ' + b"[" * 80 + b"]" * 80 + b"}",
        b'{"a":' * 70 + b"1" + b"}" * 70,
        b"null",
        b"[]",
        b'"text"',
        b"1",
    ],
)
async def test_a_body_that_is_no_json_object_is_refused(api: ServedApi, body: bytes) -> None:
    answer = await api.client.post(SEND, content=body, headers=JSON)
    problem = problem_of(answer, 422, "validation_failed")
    assert problem["errors"][0]["path"] == "body"
    await nothing_changed(api)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "message"),
        ({"message": {"parts": []}}, "message.parts"),
        ({"message": {}}, "message.parts"),
        ({"message": "hello"}, "message"),
        ({"message": {"parts": "hello"}}, "message.parts"),
        ({"message": {"parts": [{"type": "text"}]}}, "message.parts.0.text"),
        ({"message": {"parts": [{"type": "text", "text": 5}]}}, "message.parts.0.text"),
        ({"message": {"parts": [{"type": "text", "text": {"text": "x"}}]}}, "message.parts.0.text"),
        ({"message": {"parts": [{"type": "image", "url": "x"}]}}, "message.parts.0"),
        ({"message": {"parts": [{"text": "x"}]}}, "message.parts.0"),
        ({"message": {"parts": [None]}}, "message.parts.0"),
        ({"message": {"parts": [{"type": "file", "url": ""}]}}, "message.parts.0.url"),
        ({**HELLO, "messageId": ""}, "messageId"),
        ({**HELLO, "messageId": "a/b"}, "messageId"),
        ({**HELLO, "messageId": 5}, "messageId"),
        ({**HELLO, "queue": {"mode": "later"}}, "queue.mode"),
        ({**HELLO, "clientTools": {}}, "clientTools"),
        ({**HELLO, "surprise": 1}, "surprise"),
        ({**HELLO, "thread": {"title": ""}}, "thread.title"),
    ],
)
async def test_a_wrong_field_is_named_by_its_path(api: ServedApi, body: dict[str, Any], path: str) -> None:
    problem = problem_of(await api.client.post(SEND, json=body), 422, "validation_failed")
    assert path in [error["path"] for error in problem["errors"]]
    await nothing_changed(api)


async def test_what_was_sent_is_not_repeated_in_the_problem(api: ServedApi) -> None:
    secret = "hunter2" * 1000
    body = {"message": {"parts": [{"type": "text", "text": [secret]}]}, secret: 1, "messageId": f"/{secret}"}
    answer = await api.client.post(SEND, json=body)
    problem_of(answer, 422, "validation_failed")
    assert len(answer.content) < 2000


async def test_a_problem_lists_a_bounded_number_of_errors(api: ServedApi) -> None:
    body = {"message": {"parts": [{"type": "text"}] * 1000}}
    problem = problem_of(await api.client.post(SEND, json=body), 422, "validation_failed")
    assert len(problem["errors"]) == 20


async def test_nul_and_lone_surrogates_become_replacement_characters(api: ServedApi) -> None:
    body = (
        rb'{"message": {"parts": [{"type": "text", "text": "a\u0000b \ud800 \udc00 \uD83D\uDE00 \\u0000 \\\u0000"}]},'
        rb' "thread": {"metadata": {}, "title": "x\u0000y"}}'
    )
    answer = await api.client.post(SEND, content=body, headers=JSON)
    assert answer.status_code == 202, answer.text
    state = await api.snapshot("t1")
    assert state["messages"][0]["parts"][0]["text"] == "a\ufffdb \ufffd \ufffd 😀 \\u0000 \\\ufffd"
    assert state["thread"]["title"]["value"] == "x\ufffdy"


async def test_duplicate_keys_are_read_as_the_last_one(api: ServedApi) -> None:
    body = b'{"message": 1, "message": {"parts": [{"type": "text", "text": "x"}]}}'
    answer = await api.client.post(SEND, content=body, headers=JSON)
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json; charset=latin-1"],
)
async def test_only_json_is_read_as_json(api: ServedApi, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await api.client.post(SEND, content=json.dumps(HELLO).encode(), headers=headers)
    problem = problem_of(answer, 422, "validation_failed")
    assert problem["errors"][0]["path"] == "content-type"
    await nothing_changed(api)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=UTF-8", "application/vnd.pai+json", "APPLICATION/JSON"]
)
async def test_every_name_of_json_is_understood(api: ServedApi, content_type: str) -> None:
    answer = await api.client.post(SEND, content=json.dumps(HELLO).encode(), headers={"content-type": content_type})
    assert answer.status_code == 202, answer.text


async def test_a_body_that_declares_too_much_is_refused_before_it_is_read(settings: Settings) -> None:
    small = settings.model_copy(update={"max_body_bytes": 1000})
    async with served(small) as api:
        reader, writer = await asyncio.open_connection(*api.address)
        writer.write(
            f"POST {SEND} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            "content-length: 100000000000000000000\r\n\r\n".encode()
        )
        status = await reader.readline()
        writer.close()
        assert b" 413 " in status or b" 400 " in status
        answer = await api.client.post(SEND, content=b"x" * 1001, headers=JSON)
        problem = problem_of(answer, 413, "too_large")
        assert problem["limitBytes"] == 1000
        await nothing_changed(api)


async def test_a_body_without_a_length_is_refused_when_it_grows_too_long(settings: Settings) -> None:
    small = settings.model_copy(update={"max_body_bytes": 1000})
    async with served(small) as api:
        reader, writer = await asyncio.open_connection(*api.address)
        writer.write(
            f"POST {SEND} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(3):
            writer.write(b"190\r\n" + b" " * 400 + b"\r\n")
        # The last chunk never comes: the answer must not wait for it.
        assert b" 413 " in await reader.readline()
        writer.close()
        await nothing_changed(api)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
async def test_an_idempotency_key_must_be_short_and_printable(api: ServedApi, key: str) -> None:
    answer = await api.client.post(SEND, json=HELLO, headers={"Idempotency-Key": key})
    problem = problem_of(answer, 422, "validation_failed")
    assert problem["errors"][0]["path"] == "Idempotency-Key"
    await nothing_changed(api)


IMPOSSIBLE_IDS = ["%00", "a%20b", "a%22b", "%F0%9F%98%80", "x" * 201, "%FF", "%2E%2E%2Fx", "a;b"]


@pytest.mark.parametrize("thread_id", IMPOSSIBLE_IDS)
async def test_an_impossible_id_names_nothing_when_reading(api: ServedApi, thread_id: str) -> None:
    for path in ("", "/watch", "/runs/run_1"):
        answer = await api.client.get(f"{BASE}/threads/{thread_id}{path}")
        problem_of(answer, 404, "not_found")


@pytest.mark.parametrize("thread_id", [one for one in IMPOSSIBLE_IDS if "%2F" not in one])
async def test_an_impossible_id_is_a_mistake_when_changing(api: ServedApi, thread_id: str) -> None:
    base = f"{BASE}/threads/{thread_id}"
    answers = [
        await api.client.post(f"{base}/send", json=HELLO),
        await api.client.post(f"{base}/stop", json={}),
        await api.client.post(f"{base}/runs/run_1/stop", json={}),
        await api.client.patch(base, json={"title": "x"}),
        await api.client.delete(base),
    ]
    for answer in answers:
        problem = problem_of(answer, 422, "validation_failed")
        assert problem["errors"][0]["path"] == "threadId"
    await nothing_changed(api)


@pytest.mark.parametrize("run_id", ["%00", "a%20b"])
async def test_an_impossible_run_id_is_refused(api: ServedApi, run_id: str) -> None:
    await api.send("t1")
    assert problem_of(await api.client.get(f"{BASE}/threads/t1/runs/{run_id}"), 404, "not_found")["what"] == "run"
    problem_of(await api.client.post(f"{BASE}/threads/t1/runs/{run_id}/stop"), 422, "validation_failed")


async def test_what_does_not_exist_is_named(api: ServedApi) -> None:
    gets = {
        "/api/pai/nobody": "agent",
        "/api/pai/nobody/threads": "agent",
        "/api/pai/nobody/threads/t1/watch": "agent",
        f"{BASE}/threads/t1": "thread",
        f"{BASE}/threads/t1/runs/run_1": "run",
        f"{BASE}/nothing/here": "route",
        "/": "route",
    }
    for path, what in gets.items():
        assert problem_of(await api.client.get(path), 404, "not_found")["what"] == what, path
    assert problem_of(await api.client.post("/api/pai/nobody/threads/t/send"), 404, "not_found")["what"] == "agent"
    for answer in (
        await api.client.post(f"{BASE}/threads/t1/stop"),
        await api.client.patch(f"{BASE}/threads/t1", json={"title": "x"}),
    ):
        assert problem_of(answer, 404, "not_found")["what"] == "thread"
    await nothing_changed(api)


async def test_another_method_is_a_problem_that_says_which_are_allowed(api: ServedApi) -> None:
    answer = await api.client.get(SEND)
    problem_of(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=many", "limit"),
        ("limit=1e400", "limit"),
        ("status=busy", "status"),
        ("pageToken=garbage", "pageToken"),
        ("pageToken=%F0%9F%98%80", "pageToken"),
        ("pageToken=%00", "pageToken"),
        ("pageToken=", "pageToken"),
        ("pageToken=WzEsMl0", "pageToken"),
    ],
)
async def test_a_wrong_query_is_refused(api: ServedApi, query: str, path: str) -> None:
    problem = problem_of(await api.client.get(f"{BASE}/threads?{query}"), 422, "validation_failed")
    assert problem["errors"][0]["path"] == path


async def test_a_wrong_snapshot_flag_is_refused(api: ServedApi) -> None:
    problem_of(await api.client.get(f"{BASE}/threads/t1/watch?snapshot=maybe"), 422, "validation_failed")


@pytest.mark.parametrize("title", ["", " ", "x" * 201, 5, None])
async def test_a_wrong_title_changes_nothing(api: ServedApi, title: Any) -> None:
    await api.send("t1")
    problem_of(await api.client.patch(f"{BASE}/threads/t1", json={"title": title}), 422, "validation_failed")
    assert (await api.snapshot("t1"))["revision"] == 1


async def test_a_bug_says_nothing_about_itself(api: ServedApi, caplog: pytest.LogCaptureFixture) -> None:
    async def explode(_: object) -> None:
        raise RuntimeError("the password is hunter2")

    object.__setattr__(api.state, "gate", explode)
    answer = await api.client.get(BASE)
    problem_of(answer, 500, "internal")
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
