"""Files over HTTP and directly: uploaded and read as streams, opened by signed URLs, and safe in a browser."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from api_parts import BASE, ServedApi, served
from sqlalchemy import text
from test_api_bad_input import problem_of

from pai.client import AgentClient, create_agent_client, create_direct_transport, create_http_transport
from pai.client.parts import PaiAttachmentPart
from pai.files.provider import FilesUnavailable
from pai.protocol.errors import (
    Forbidden,
    NotFound,
    PaiError,
    RangeNotSatisfiable,
    TooLarge,
    Unavailable,
    ValidationFailed,
)
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai_api.file_response import content_disposition
from support.file_stores import FileStore
from support.waiting import wait_until

MIB = 1024 * 1024
LIMIT = 10 * MIB
TEXT = b"0123456789"
ANNA, BEN = {"x-user": "anna"}, {"x-user": "ben"}


@pytest.fixture
def settings(settings: Settings, file_store: FileStore) -> Settings:
    return settings.model_copy(update={**file_store.settings, "max_file_bytes": LIMIT})


@pytest.fixture
def local(settings: Settings, local_store: FileStore) -> Settings:
    return settings.model_copy(update={**local_store.settings, "identity": "api_parts:by_header"})


@pytest.fixture
async def guarded(database_url: str, redis_url: str, local_store: FileStore) -> AsyncIterator[ServedApi]:
    """Files in a folder, and callers who say who they are: ANNA by default."""
    settings = Settings(database_url=database_url, redis_url=redis_url, **local_store.settings, max_file_bytes=LIMIT)
    async with served(settings.model_copy(update={"identity": "api_parts:by_header"}), **ANNA) as running:
        yield running


@pytest.fixture(params=["http", "direct"])
async def client(request: pytest.FixtureRequest, api: ServedApi) -> AsyncIterator[AgentClient]:
    if request.param == "http":
        transport: Any = create_http_transport(f"{str(api.client.base_url).rstrip('/')}{BASE}")
    else:
        transport = create_direct_transport(api.state.runtime, Identity(subject="anonymous"), "main")
    async with create_agent_client(transport) as made:
        yield made


async def in_pieces(data: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def upload(api: ServedApi, body: Any = TEXT, kind: str = "text/plain", **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await api.client.post(f"{BASE}/files", content=body, headers={"content-type": kind, **named})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_file_is_read_as_it_was_uploaded(client: AgentClient, file_store: FileStore) -> None:
    data = os.urandom(MIB)
    told = {"media_type": "image/png", "filename": 'größe "1".png', "metadata": {"pages": [1], "täg": "\u20ac"}}
    for body, size in ((data, None), (in_pieces(data), None), (in_pieces(data), len(data))):
        file = await client.files.upload(body, byte_size=size, thread_id="not-there-yet", **told)
        assert file.byte_size == len(data)
        assert (file.media_type, file.filename, file.metadata) == tuple(told.values())
        async with await client.files.read(file.file_id) as stored:
            assert (stored.media_type, stored.byte_size, stored.filename) == ("image/png", len(data), told["filename"])
            assert b"".join([piece async for piece in stored]) == data
        for first, last in ((0, 0), (5, 9), (len(data) - 1, None), (None, 3), (7, 2**40)):
            part = await client.files.read(file.file_id, first=first, last=last)
            expected = data[first or 0 : None if last is None else last + 1]
            assert part.byte_size == len(expected)
            assert await part.read() == expected
        with pytest.raises(RangeNotSatisfiable) as caught:
            await client.files.read(file.file_id, first=len(data))
        assert caught.value.byte_size == len(data)
    assert len(file_store.contents()) == 3


async def test_an_uploaded_file_is_attached_and_shown(client: AgentClient) -> None:
    file = await client.files.upload(TEXT, media_type="text/plain", filename="a.txt", metadata={"a": 1})
    thread = client.thread(client.new_thread_id())
    await thread.send(text="look", attachments=[file])
    [message] = [message for message in (await thread.refresh()).messages if message.role == "user"]
    part = message.parts[1]
    assert isinstance(part, PaiAttachmentPart)
    assert (part.file_id, part.media_type, part.filename) == (file.file_id, "text/plain", "a.txt")
    assert (part.byte_size, part.metadata) == (len(TEXT), {"a": 1})


async def test_a_signed_url_needs_nothing_else_until_it_expires(client: AgentClient, api: ServedApi) -> None:
    file = await client.files.upload(TEXT, media_type="text/plain", filename="a.txt")
    made = await client.files.url(file.file_id, intent="download", ttl=timedelta(minutes=1))
    assert made is not None
    answer = await api.client.get(made.url)
    assert answer.content == TEXT
    assert answer.headers["content-disposition"] == 'attachment; filename="a.txt"'
    viewed = await client.files.url(file.file_id)
    assert viewed is not None
    assert (await api.client.get(viewed.url)).headers["content-disposition"] == 'inline; filename="a.txt"'
    assert await client.files.url("file_none") is None
    longest = api.state.settings.max_file_url_ttl
    for ttl in (timedelta(0), timedelta(seconds=-5), longest + timedelta(seconds=1)):
        with pytest.raises(ValidationFailed):
            await client.files.url(file.file_id, ttl=ttl)


async def test_a_body_must_be_what_it_says(client: AgentClient, file_store: FileStore) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        raise RuntimeError("the disk of the caller")

    many = in_pieces(bytes(LIMIT + 1))
    for wrong, error in (
        (client.files.upload(in_pieces(TEXT), media_type="a/b", byte_size=9), ValidationFailed),
        (client.files.upload(in_pieces(TEXT), media_type="a/b", byte_size=11), ValidationFailed),
        (client.files.upload(TEXT, media_type="a/b", byte_size=11), ValidationFailed),
        (client.files.upload(TEXT, media_type="a"), ValidationFailed),
        (client.files.upload(TEXT, media_type="a/b\r\nx: y"), ValidationFailed),
        (client.files.upload(TEXT, media_type="a/b", filename="a\nb"), ValidationFailed),
        (client.files.upload(TEXT, media_type="a/b", thread_id="ü"), ValidationFailed),
        (client.files.upload(TEXT, media_type="a/b", metadata={"x": float("nan")}), ValidationFailed),
        (client.files.upload(many, media_type="a/b"), TooLarge),
        (client.files.upload(bytes(LIMIT + 1), media_type="a/b"), TooLarge),
        (client.files.upload(breaks(), media_type="a/b"), RuntimeError),
        (client.files.read("file_none"), NotFound),
        (client.files.read("../../etc/passwd"), NotFound),
    ):
        with pytest.raises(error):
            await wrong
    await wait_until(lambda: not file_store.contents(), saw=file_store.contents)


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(api: ServedApi, file_store: FileStore) -> None:
    async def rows() -> int:
        async with api.state.runtime.store.read() as connection:
            return int((await connection.execute(text("SELECT count(*) FROM file"))).scalar_one())

    async def no_rows() -> bool:
        return await rows() == 0

    for size in (1, 9 * MIB):
        _, writer = await asyncio.open_connection(*api.address)
        try:
            head = f"POST {BASE}/files HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\ncontent-length: {LIMIT}\r\n\r\n"
            writer.write(head.encode() + bytes(size))
            await writer.drain()
            await wait_until(rows)
            if size > 8 * MIB:
                await wait_until(file_store.contents)
        finally:
            writer.close()
        await wait_until(no_rows)
        assert file_store.contents() == set()


async def test_a_broken_store_is_unavailable(client: AgentClient, api: ServedApi, monkeypatch: Any) -> None:
    file = await client.files.upload(TEXT, media_type="text/plain")

    async def broken(*_: Any, **__: Any) -> Any:
        raise FilesUnavailable("The store is away.")
        yield

    monkeypatch.setattr(api.state.runtime.files, "read", broken)
    with pytest.raises(Unavailable):
        await client.files.read(file.file_id)


async def test_ranges_work_as_the_standard_says(guarded: ServedApi) -> None:
    file = await upload(guarded)
    path = f"{BASE}/files/{file['fileId']}"
    whole = await guarded.client.get(path)
    etag = whole.headers["etag"]
    assert whole.headers["accept-ranges"] == "bytes"
    parts = {"bytes=0-0": (0, 1), "bytes=2-4": (2, 5), "bytes=7-": (7, 10), "bytes=-3": (7, 10), "bytes=-99": (0, 10)}
    parts |= {"bytes=0-9999999999999999999": (0, 10), "Bytes= 1-2": (1, 3)}
    for header, (first, end) in parts.items():
        answer = await guarded.client.get(path, headers={"range": header})
        assert (answer.status_code, answer.content) == (206, TEXT[first:end]), header
        assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/10"
        assert answer.headers["content-length"] == str(end - first)
    for header in ("bytes=10-", "bytes=99-100", "bytes=-0"):
        answer = await guarded.client.get(path, headers={"range": header})
        assert answer.headers["content-range"] == "bytes */10"
        assert problem_of(answer, 416, "range_not_satisfiable")["byteSize"] == 10
    for header in ("bytes=", "bytes=-", "bytes=4-2", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=1-2-3", "x"):
        answer = await guarded.client.get(path, headers={"range": header})
        assert (answer.status_code, answer.content) == (200, TEXT), header
    for tag, status in ((etag, 206), ('"other"', 200), (f"W/{etag}", 200)):
        answer = await guarded.client.get(path, headers={"range": "bytes=0-1", "if-range": tag})
        assert answer.status_code == status, tag
    for tag, status in ((etag, 304), (f"W/{etag}", 304), (f'"x", {etag}', 304), ("*", 304), ('"other"', 200)):
        answer = await guarded.client.get(path, headers={"if-none-match": tag})
        assert answer.status_code == status, tag
    empty = await upload(guarded, b"")
    answer = await guarded.client.get(f"{BASE}/files/{empty['fileId']}")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    answer = await guarded.client.get(f"{BASE}/files/{empty['fileId']}", headers={"range": "bytes=0-"})
    problem_of(answer, 416, "range_not_satisfiable")


KINDS = [
    ("image/png", True),
    ("text/plain; charset=utf-8", True),
    ("application/pdf", True),
    ("video/mp4", True),
    ("text/html", False),
    ("TEXT/HTML", False),
    ("text/html; charset=utf-7", False),
    ("image/svg+xml", False),
    ("application/xhtml+xml", False),
    ("text/xml", False),
    ("application/xml", False),
    ("text/javascript", False),
    ("application/javascript", False),
    ("multipart/x-mixed-replace", False),
    ("application/octet-stream", False),
]


async def test_nothing_that_a_browser_would_run_is_shown(guarded: ServedApi) -> None:
    for kind, shown in KINDS:
        file = await upload(guarded, b"<script>alert(1)</script>", kind, x_pai_filename="page")
        path = f"{BASE}/files/{file['fileId']}"
        url = (await guarded.client.post(f"{path}/url", json={"intent": "view"})).json()["url"]
        for answer in (await guarded.client.get(path), await guarded.client.get(url)):
            assert answer.status_code == 200
            assert answer.headers["content-disposition"].split(";")[0] == ("inline" if shown else "attachment")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-type"] == file["mediaType"]
            if kind != "application/pdf":
                assert answer.headers["content-security-policy"].startswith("sandbox;")


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a.txt", 'inline; filename="a.txt"'),
        ('a"b%.txt', "inline; filename=\"a_b_.txt\"; filename*=UTF-8''a%22b%25.txt"),
        ("ü €.png", "inline; filename=\"_ _.png\"; filename*=UTF-8''%C3%BC%20%E2%82%AC.png"),
        ("\U0001f600", "inline; filename=\"_\"; filename*=UTF-8''%F0%9F%98%80"),
        (None, "inline"),
    ],
)
def test_a_name_is_quoted_for_every_reader(name: str | None, header: str) -> None:
    assert content_disposition("inline", name) == header


NO_NAMES = [
    "",
    " ",
    ".",
    "..",
    "a/b",
    "a\\b",
    "../../etc/passwd",
    "a\r\nx: y",
    "a\x1bb",
    "\x85",
    "x" * 256,
    "\u202etxt.exe",
]


async def test_a_name_that_is_none_is_refused(guarded: ServedApi) -> None:
    for name in NO_NAMES:
        headers = {"content-type": "a/b", "x-pai-filename": quote(name, safe="")}
        answer = await guarded.client.post(f"{BASE}/files", content=TEXT, headers=headers)
        problem_of(answer, 422, "validation_failed")


BAD_HEADERS: list[dict[str, str]] = [
    {"content-type": ""},
    {"content-type": "text"},
    {"content-type": "text/"},
    {"content-type": "te xt/plain"},
    {"content-type": "x" * 70 + "/plain"},
    {"content-type": "a/b", "x-pai-filename": "%ff"},
    {"content-type": "a/b", "x-pai-metadata": "{"},
    {"content-type": "a/b", "x-pai-metadata": "[]"},
    {"content-type": "a/b", "x-pai-metadata": '{"a": NaN}'},
    {"content-type": "a/b", "x-pai-metadata": '{"a": "' + "x" * 9000 + '"}'},
    {"content-type": "a/b", "x-pai-metadata": '{"a":' * 70 + "1" + "}" * 70},
    {"content-type": "a/b", "x-pai-thread-id": "a b"},
    {"content-type": "a/b", "x-pai-thread-id": ".."},
    {"content-type": "a/b", "idempotency-key": ""},
]


async def test_bad_uploads_change_nothing(guarded: ServedApi, local_store: FileStore) -> None:
    for headers in BAD_HEADERS:
        answer = await guarded.client.post(f"{BASE}/files", content=TEXT, headers=headers)
        problem_of(answer, 422, "validation_failed")
        assert local_store.contents() == set()


@pytest.mark.parametrize("header", ["{", "[]", '{"a": NaN}', '{"a":' * 70 + "1" + "}" * 70])
async def test_bad_metadata_is_reported_at_its_header(guarded: ServedApi, header: str) -> None:
    headers = {"content-type": "a/b", "x-pai-metadata": header}
    answer = await guarded.client.post(f"{BASE}/files", content=TEXT, headers=headers)
    assert [error["path"] for error in problem_of(answer, 422, "validation_failed")["errors"]] == ["x-pai-metadata"]


async def test_a_file_without_a_media_type_is_refused(guarded: ServedApi) -> None:
    request = guarded.client.build_request("POST", f"{BASE}/files", content=TEXT)
    assert "content-type" not in request.headers
    problem_of(await guarded.client.send(request), 422, "validation_failed")


async def test_nul_in_a_name_or_in_metadata_is_cleaned(guarded: ServedApi) -> None:
    file = await upload(guarded, x_pai_filename="a%00b", x_pai_metadata='{"a": "\\u0000\\ud800"}')
    assert file["filename"] == "a\ufffdb"
    assert file["metadata"] == {"a": "\ufffd\ufffd"}


async def test_the_same_key_gets_the_recorded_file(guarded: ServedApi, local_store: FileStore) -> None:
    key = {"content-type": "a/b", "idempotency-key": "k"}
    first = await guarded.client.post(f"{BASE}/files", content=TEXT, headers=key)
    again = await guarded.client.post(f"{BASE}/files", content=in_pieces(TEXT), headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    for more in ({"content-type": "a/c"}, {"x-pai-thread-id": "t"}):
        answer = await guarded.client.post(f"{BASE}/files", content=TEXT, headers={**key, **more})
        problem_of(answer, 409, "idempotency_conflict")
    answer = await guarded.client.post(f"{BASE}/files", content=b"other", headers=key)
    problem_of(answer, 409, "idempotency_conflict")
    assert len(local_store.contents()) == 1


async def test_another_identitys_file_does_not_exist(guarded: ServedApi) -> None:
    file = (await upload(guarded))["fileId"]
    attach = {"message": {"parts": [{"type": "attachment", "fileId": file}]}}
    for answer in (
        await guarded.client.get(f"{BASE}/files/{file}", headers=BEN),
        await guarded.client.post(f"{BASE}/files/{file}/url", json={}, headers=BEN),
        await guarded.client.post(f"{BASE}/threads/t/send", json=attach, headers=BEN),
        await guarded.client.get(f"/api/pai/other/files/{file}"),
        await guarded.client.post(f"/api/pai/other/files/{file}/url", json={}),
        await guarded.client.post("/api/pai/other/threads/t/send", json=attach),
    ):
        assert problem_of(answer, 404, "not_found")["what"] == "file"
    for route in ("", f"/{file}", f"/{file}/url"):
        for method in ("GET", "POST"):
            answer = await guarded.client.request(method, f"{BASE}/files{route}", headers={"x-user": ""})
            assert answer.status_code in (401, 405, 422), (method, route)
    assert (await guarded.client.get(f"{BASE}/threads", headers=BEN)).json() == {"items": []}


NO_IDS = ["%2e%2e", "..%2f..%2fetc%2fpasswd", "a%2Fb", "a%00", "x" * 300, "%ff"]


async def test_no_id_leads_out_of_the_store(guarded: ServedApi) -> None:
    for path in NO_IDS:
        await upload(guarded)
        for tail in ("", "/content?intent=view&expires=1&signature=x"):
            answer = await guarded.client.get(f"{str(guarded.client.base_url).rstrip('/')}{BASE}/files/{path}{tail}")
            assert answer.status_code == 404, answer.text


async def test_a_signed_url_opens_nothing_but_what_it_was_made_for(guarded: ServedApi) -> None:
    file, other = (await upload(guarded))["fileId"], (await upload(guarded, b"other"))["fileId"]
    answer = await guarded.client.post(f"{BASE}/files/{file}/url", json={"intent": "download", "ttlSeconds": 60})
    url = answer.json()["url"]
    parts = urlsplit(url)
    assert f"{parts.scheme}://{parts.netloc}" == str(guarded.client.base_url).rstrip("/")
    async with httpx.AsyncClient() as nobody:
        assert (await nobody.get(url)).content == TEXT
        part = await nobody.get(url, headers={"range": "bytes=1-2"})
        assert (part.status_code, part.content) == (206, TEXT[1:3])
        signature = dict(pair.split("=", 1) for pair in parts.query.split("&"))["signature"]
        expires = dict(pair.split("=", 1) for pair in parts.query.split("&"))["expires"]
        for wrong in (
            url.replace(file, other),
            url.replace("intent=download", "intent=view"),
            url.replace("/main/", "/other/"),
            url.replace(expires, str(int(expires) + 1)),
            url.replace(signature, signature[:-1]),
            url.replace(signature, "A" * 43),
            url.replace(signature, "%C3%BC"),
            url.replace(signature, ""),
        ):
            assert wrong != url
            problem_of(await nobody.get(wrong), 404, "not_found")
        for wrong in (url.replace("intent=download", "intent=run"), url.split("&signature")[0], f"{url}{'x' * 100}"):
            problem_of(await nobody.get(wrong), 422, "validation_failed")


async def test_an_expired_url_says_so(guarded: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (await upload(guarded))["fileId"]
    url = (await guarded.client.post(f"{BASE}/files/{file}/url", json={"ttlSeconds": 1})).json()["url"]
    from pai.protocol.times import now_ms

    monkeypatch.setattr("pai.engine.files.now_ms", lambda: now_ms() + 2000)
    problem_of(await guarded.client.get(url), 403, "forbidden")


BAD_URL_REQUESTS: list[Any] = [
    {"ttlSeconds": 0},
    {"ttlSeconds": -1},
    {"ttlSeconds": 1.5},
    {"ttlSeconds": 10**9},
    {"ttlSeconds": 10**30},
    {"ttlSeconds": "60"},
    {"intent": "run"},
    {"intents": "view"},
    [],
]


async def test_a_url_is_asked_for_in_the_right_words(guarded: ServedApi) -> None:
    for body in BAD_URL_REQUESTS:
        file = (await upload(guarded))["fileId"]
        answer = await guarded.client.post(f"{BASE}/files/{file}/url", json=body)
        problem_of(answer, 422, "validation_failed")


async def test_urls_lead_to_the_public_address(guarded: ServedApi) -> None:
    file = (await upload(guarded))["fileId"]
    runtime = guarded.state.runtime
    runtime.settings = runtime.settings.model_copy(update={"public_url": "https://pai.example/base/"})
    answer = await guarded.client.post(f"{BASE}/files/{file}/url")
    assert answer.json()["url"].startswith(f"https://pai.example/base/api/pai/main/files/{file}/content?")


async def test_bytes_that_vanish_are_a_typed_problem(guarded: ServedApi, local_store: FileStore) -> None:
    file = (await upload(guarded))["fileId"]
    assert local_store.folder is not None
    for path in local_store.folder.rglob("file_*"):
        path.unlink()
    problem_of(await guarded.client.get(f"{BASE}/files/{file}"), 404, "not_found")


async def test_a_reader_that_leaves_closes_the_file(guarded: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (await upload(guarded, bytes(LIMIT), "image/png"))["fileId"]
    files = guarded.state.runtime.files
    read, closed = files.read, asyncio.Event()

    async def watched(key: str, *, first: int, count: int) -> AsyncIterator[bytes]:
        try:
            async for piece in read(key, first=first, count=count):
                yield piece
        finally:
            closed.set()

    monkeypatch.setattr(files, "read", watched)
    async with guarded.client.stream("GET", f"{BASE}/files/{file}") as response:
        await anext(response.aiter_raw(1000))
        assert not closed.is_set()
    async with asyncio.timeout(10):
        await closed.wait()


def test_the_typed_errors_of_files_survive_the_wire() -> None:
    from pai.protocol.errors import from_problem

    for error in (RangeNotSatisfiable(byte_size=3), TooLarge(limit_bytes=3), Forbidden("no")):
        read = from_problem(error.problem())
        assert type(read) is type(error)
        assert isinstance(read, PaiError)
        assert read.problem() == error.problem()
