"""Another identity's threads do not exist, and nobody is let in by mistake."""

from collections.abc import AsyncIterator

import pytest
from api_parts import BASE, HELLO, ServedApi, served

from pai.protocol.errors import DeclarationError
from pai.settings import Settings
from pai_api.app import create_app
from pai_api.identity.anonymous import is_loopback

ANNA, BEN = {"x-user": "anna"}, {"x-user": "ben"}


@pytest.fixture(params=["api_parts:by_header", "api_parts:by_header_blocking"])
async def guarded(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[ServedApi]:
    async with served(settings.model_copy(update={"identity": request.param})) as running:
        yield running


async def test_an_unknown_caller_is_unauthenticated_on_every_route(guarded: ServedApi) -> None:
    base, client = f"{BASE}/threads/t1", guarded.client
    answers = [
        await client.get("/api/pai"),
        await client.get(BASE),
        await client.get(f"{BASE}/threads"),
        await client.get(base),
        await client.get(f"{base}/watch"),
        await client.get(f"{BASE}/heads/watch"),
        await client.get(f"{base}/runs/r"),
        await client.post(f"{base}/send", json=HELLO),
        await client.post(f"{base}/stop"),
        await client.post(f"{base}/runs/r/stop"),
        await client.patch(base, json={"title": "x"}),
        await client.delete(base),
        await client.get("/api/pai/nobody"),
    ]
    for answer in answers:
        assert answer.status_code == 401, answer.url
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_health_needs_no_identity(guarded: ServedApi) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await guarded.client.get(path)).status_code == 200, path


async def test_another_identitys_thread_does_not_exist(guarded: ServedApi) -> None:
    base, client = f"{BASE}/threads/t1", guarded.client
    sent = (await client.post(f"{base}/send", json=HELLO, headers=ANNA)).json()
    run = sent["run"]["runId"]
    answers = [
        await client.get(base, headers=BEN),
        await client.get(f"{base}/runs/{run}", headers=BEN),
        await client.post(f"{base}/stop", headers=BEN),
        await client.post(f"{base}/runs/{run}/stop", headers=BEN),
        await client.patch(base, json={"title": "mine"}, headers=BEN),
    ]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert (await client.get(f"{BASE}/threads", headers=BEN)).json() == {"items": []}
    assert (await client.delete(base, headers=BEN)).status_code == 204
    assert (await client.get(base, headers=ANNA)).json()["revision"] == 1


async def test_the_same_thread_id_is_another_thread_for_another_identity(guarded: ServedApi) -> None:
    base, client = f"{BASE}/threads/t1", guarded.client
    one = (await client.post(f"{base}/send", json=HELLO, headers=ANNA)).json()
    two = (await client.post(f"{base}/send", json=HELLO, headers=BEN)).json()
    assert one["version"] != two["version"]
    answer = await client.get(f"{base}/runs/{one['run']['runId']}", headers=BEN)
    assert answer.status_code == 404


async def test_another_identitys_events_are_not_heard(guarded: ServedApi) -> None:
    base, client = f"{BASE}/threads/t1", guarded.client
    async with (
        guarded.watch(f"{base}/watch", headers=BEN) as events,
        guarded.watch(f"{BASE}/heads/watch", headers=BEN) as heads,
    ):
        await events.next()
        await heads.next()
        anna = (await client.post(f"{base}/send", json=HELLO, headers=ANNA)).json()
        ben = (await client.post(f"{base}/send", json=HELLO, headers=BEN)).json()
        assert (await events.next())[1]["version"] == ben["version"]
        assert (await heads.next())[1]["summary"]["version"] == ben["version"]
    position = f"{anna['version']}:{2**32}"
    async with guarded.watch(f"{base}/watch", headers=BEN, after=position) as events:
        assert (await events.next())[1]["version"] == ben["version"]
        assert (await events.next())[1]["type"] == "reset"


def test_anonymous_callers_are_refused_on_a_public_address(settings: Settings) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(DeclarationError, match="PAI_ALLOW_ANONYMOUS"):
            create_app(settings.model_copy(update={"host": host}), _registry())
    create_app(settings.model_copy(update={"host": "0.0.0.0", "allow_anonymous": True}), _registry())
    create_app(settings.model_copy(update={"host": "0.0.0.0", "identity": "api_parts:by_header"}), _registry())


def test_loopback_is_told_from_everything_else() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "", "127.0.0.1.example.org")))


@pytest.mark.parametrize(
    "name", ["nothing", "api_parts:missing", "no_such_module:who", "api_parts:BASE", "api_parts:", ":"]
)
def test_a_resolver_that_cannot_be_loaded_is_named(settings: Settings, name: str) -> None:
    with pytest.raises(DeclarationError, match="PAI_IDENTITY"):
        create_app(settings.model_copy(update={"identity": name}), _registry())


@pytest.mark.parametrize("name", ["builtins:repr", "sys:exit"])
async def test_a_resolver_that_answers_something_else_or_leaves_is_a_bug(settings: Settings, name: str) -> None:
    async with served(settings.model_copy(update={"identity": name})) as api:
        answer = await api.client.get(BASE)
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"


def _registry():  # type: ignore[no-untyped-def]
    from api_parts import registry

    return registry()
