"""A watch lasts as long as the access that opened it, and browsers open it with a token in the address."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from api_parts import BASE, HELLO, ServedApi, served
from identity_parts import SECRET, bearer, claims, hs256
from starlette.requests import Request

from pai.client import create_pai_http_client
from pai.engine import api_keys
from pai.engine.signing import signing_key
from pai.protocol.errors import Forbidden, Unauthenticated, Unavailable
from pai.protocol.identity import Identity
from pai.protocol.times import from_iso
from pai.settings import Settings
from support.waiting import wait_until

ANNA = Identity(subject="anna")
WATCHES = ("threads/t1/watch", "heads/watch")
LEAST = 1e-6


def quickly(settings: Settings, **update: Any) -> Settings:
    """Looks at open watches many times a second."""
    return Settings(**{**settings.model_dump(), "recheck_interval": 0.02, "key_cache": 0.02, **update})


@pytest.fixture
async def keyed(settings: Settings) -> AsyncIterator[ServedApi]:
    async with served(quickly(settings, identity="keys")) as api:
        yield api


@pytest.fixture
async def by_token(settings: Settings) -> AsyncIterator[ServedApi]:
    async with served(quickly(settings, identity="jwt", jwt_secret=SECRET, jwt_leeway=LEAST)) as api:
        yield api


class Guests:
    """An application's resolver whose mind the test changes."""

    answer: Identity | Exception | None = ANNA
    asked = 0

    async def __call__(self, request: Request) -> Identity | None:
        Guests.asked += 1
        if isinstance(Guests.answer, Exception):
            raise Guests.answer
        return Guests.answer if request.headers.get("x-guest") else None


guests = Guests()
GUEST = {"x-guest": "yes"}


@pytest.fixture
async def by_guests(settings: Settings) -> AsyncIterator[ServedApi]:
    Guests.answer, Guests.asked = ANNA, 0
    async with served(quickly(settings, identity="test_api_access:guests")) as api:
        yield api


async def new_key(api: ServedApi) -> api_keys.NewKey:
    return await api_keys.create_key(api.state.runtime.store, "a key", identity=ANNA)


async def watch_token(api: ServedApi, path: str, headers: dict[str, str]) -> str:
    answer = await api.client.post(f"{BASE}/{path}-token", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json()["token"])


@pytest.mark.parametrize("path", WATCHES)
async def test_a_revoked_key_ends_its_watches(keyed: ServedApi, path: str) -> None:
    key = await new_key(keyed)
    async with keyed.watch(f"{BASE}/{path}", headers=bearer(key.text)) as events:
        assert (await events.next())[1]["type"] == "ready"
        await api_keys.revoke_key(keyed.state.runtime.store, key.row.key_id)
        await events.end()
    assert (await keyed.client.get(f"{BASE}/{path}", headers=bearer(key.text))).status_code == 401


@pytest.mark.parametrize("path", WATCHES)
async def test_an_expired_token_ends_its_watches(by_token: ServedApi, path: str) -> None:
    headers = bearer(hs256(claims(exp=int(time.time()) + 2)))
    async with by_token.watch(f"{BASE}/{path}", headers=headers) as events:
        assert (await events.next())[1]["type"] == "ready"
        await events.end()
    assert (await by_token.client.get(f"{BASE}/{path}", headers=headers)).status_code == 401


@pytest.mark.parametrize("answer", [None, Unauthenticated(), Forbidden(), Identity(subject="ben")])
async def test_a_resolver_is_asked_again_and_may_change_its_mind(by_guests: ServedApi, answer: Any) -> None:
    async with by_guests.watch(f"{BASE}/threads/t1/watch", headers=GUEST) as events:
        assert (await events.next())[1]["type"] == "ready"
        Guests.answer = answer
        await events.end()


async def test_whoever_is_not_trusted_any_more_loses_what_was_opened(by_guests: ServedApi) -> None:
    Guests.answer = Identity(subject="anna", trusted=True)
    async with by_guests.watch(f"{BASE}/heads/watch", headers=GUEST) as events:
        assert (await events.next())[1]["type"] == "ready"
        Guests.answer = ANNA
        await events.end()


@pytest.mark.parametrize("trouble", [Unavailable(), RuntimeError("the directory is down")])
async def test_a_resolver_that_cannot_tell_ends_nothing(by_guests: ServedApi, trouble: Exception) -> None:
    async with by_guests.watch(f"{BASE}/threads/t1/watch", headers=GUEST) as events:
        assert (await events.next())[1]["type"] == "ready"
        Guests.answer = trouble
        before = Guests.asked
        await wait_until(lambda: Guests.asked >= before + 3)
        Guests.answer = ANNA
        await by_guests.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=GUEST)
        assert (await events.next())[1]["type"] == "update"


@pytest.mark.parametrize("path", WATCHES)
async def test_a_watch_token_opens_the_watch_it_is_for(keyed: ServedApi, path: str) -> None:
    key = await new_key(keyed)
    token = await watch_token(keyed, path, bearer(key.text))
    async with keyed.watch(f"{BASE}/{path}", token=token) as events:
        assert (await events.next())[1]["type"] == "ready"
        await keyed.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=bearer(key.text))
        assert (await events.next())[1]["type"] in ("update", "head")


async def test_a_watch_token_opens_nothing_else(keyed: ServedApi) -> None:
    key = await new_key(keyed)
    await keyed.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=bearer(key.text))
    thread = await watch_token(keyed, "threads/t1/watch", bearer(key.text))
    heads = await watch_token(keyed, "heads/watch", bearer(key.text))
    other = BASE.replace("main", "other")
    refused = [
        ("GET", f"{BASE}/threads/t2/watch", thread),
        ("GET", f"{BASE}/heads/watch", thread),
        ("GET", f"{BASE}/threads/t1/watch", heads),
        ("GET", f"{other}/threads/t1/watch", thread),
        ("GET", f"{other}/heads/watch", heads),
        ("GET", f"{BASE}/threads/t1", thread),
        ("GET", f"{BASE}/threads", heads),
        ("DELETE", f"{BASE}/threads/t1", thread),
        ("POST", f"{BASE}/threads/t1/watch-token", thread),
        ("POST", f"{BASE}/heads/watch-token", heads),
    ]
    for method, path, token in refused:
        for sent in ({"params": {"token": token}}, {"headers": bearer(token)}):
            answer = await keyed.client.request(method, path, **sent)
            assert answer.status_code == 401, (method, path, sent)
    assert (await keyed.client.get(f"{BASE}/threads/t1", headers=bearer(key.text))).status_code == 200


async def test_a_watch_token_that_was_changed_opens_nothing(keyed: ServedApi) -> None:
    token = await watch_token(keyed, "heads/watch", bearer((await new_key(keyed)).text))
    payload, signature = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**content, "subject": "ben"}).encode()).decode().rstrip("=")
    wrong = ["", ".", "x", token[:-1], token + "x", f"{other}.{signature}", f"{payload}.", f".{signature}", "é.é"]
    wrong += [f"{payload}.{signature}.", "\x00", "x" * 20_000]
    for text in wrong:
        answer = await keyed.client.get(f"{BASE}/heads/watch", params={"token": text})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), text[:100]


async def test_a_watch_token_opens_watches_for_a_short_time(settings: Settings) -> None:
    async with served(quickly(settings, identity="keys", watch_token_ttl=0.3)) as api:
        key = await new_key(api)
        before = time.time()
        answer = (await api.client.post(f"{BASE}/heads/watch-token", headers=bearer(key.text))).json()
        assert before + 0.2 < from_iso(answer["expiresAt"]) / 1000 < time.time() + 0.4
        async with api.watch(f"{BASE}/heads/watch", token=answer["token"]) as events:
            await events.next()
            while True:
                late = await api.client.send(
                    api.client.build_request("GET", f"{BASE}/heads/watch", params={"token": answer["token"]}),
                    stream=True,
                )
                await late.aclose()
                if late.status_code == 401:
                    break
            # What is open stays open as long as the key is valid.
            await api.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=bearer(key.text))
            assert (await events.next())[1]["type"] == "head"
            await api_keys.revoke_key(api.state.runtime.store, key.row.key_id)
            await events.end()


async def test_a_watch_by_token_ends_with_the_token_that_asked_for_it(by_token: ServedApi) -> None:
    token = await watch_token(by_token, "heads/watch", bearer(hs256(claims(exp=int(time.time()) + 2))))
    async with by_token.watch(f"{BASE}/heads/watch", token=token) as events:
        await events.next()
        await events.end()
    assert (await by_token.client.get(f"{BASE}/heads/watch", params={"token": token})).status_code == 401


async def test_a_watch_by_token_ends_soon_where_a_resolver_cannot_be_asked_again(settings: Settings) -> None:
    Guests.answer = ANNA
    async with served(quickly(settings, identity="test_api_access:guests", watch_token_ttl=0.3)) as api:
        token = await watch_token(api, "heads/watch", GUEST)
        async with api.watch(f"{BASE}/heads/watch", token=token) as events:
            await events.next()
            await events.end()


async def test_processes_share_the_key_that_signs(settings: Settings) -> None:
    options = quickly(settings, identity="keys")
    async with served(options) as one, served(options) as two:
        made = await asyncio.gather(signing_key(one.state.runtime, "watch"), signing_key(two.state.runtime, "watch"))
        assert made[0] == made[1]
        assert made[0] != await signing_key(one.state.runtime, "files")
        token = await watch_token(one, "heads/watch", bearer((await new_key(one)).text))
        async with two.watch(f"{BASE}/heads/watch", token=token) as events:
            assert (await events.next())[1]["type"] == "ready"
    async with served(quickly(settings, identity="keys", secret="x" * 32)) as other:
        assert (await other.client.get(f"{BASE}/heads/watch", params={"token": token})).status_code == 401


async def test_a_client_is_told_why_its_watch_ended(keyed: ServedApi) -> None:
    """It comes again once, and reports what it hears, rather than coming again for ever."""
    key = await new_key(keyed)
    await keyed.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=bearer(key.text))
    async with create_pai_http_client(str(keyed.client.base_url), headers=bearer(key.text)) as server:
        agent = server.agent("main")
        states = agent.thread("t1").watch()
        heads = agent.threads.watch_heads()
        await anext(states)
        await anext(heads)
        await api_keys.revoke_key(keyed.state.runtime.store, key.row.key_id)
        for watch in (states, heads):
            with pytest.raises(Unauthenticated, match="revoked"):
                async for _ in watch:
                    pass
        with pytest.raises(Unauthenticated):
            await agent.thread("t1").send("hello")


async def test_a_client_that_renews_its_token_goes_on(by_token: ServedApi) -> None:
    given: list[int] = []

    async def headers() -> dict[str, str]:
        given.append(int(time.time()) + 2)
        return bearer(hs256(claims(exp=given[-1])))

    async with create_pai_http_client(str(by_token.client.base_url), headers=headers) as server:
        thread = server.agent("main").thread("t1")
        await thread.send("hello")
        async with thread.watch() as states:
            await anext(states)
            opened = len(given)
            await wait_until(lambda: len(given) > opened)
            await thread.rename("Still here")
            async for state in states:
                if state.thread.title is not None and state.thread.title.value == "Still here":
                    break


def test_the_promise_of_a_minute_is_kept_by_default() -> None:
    settings = Settings()
    assert settings.recheck_interval + settings.key_cache <= timedelta(minutes=1)
    assert settings.watch_token_ttl <= timedelta(minutes=1)
    assert settings.jwt_leeway <= timedelta(minutes=1)
