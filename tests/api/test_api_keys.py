"""An API key opens what its identity owns until it is revoked or expires."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from api_parts import BASE, HELLO, ServedApi, served
from identity_parts import SECRET, bearer, hs256
from sqlalchemy import event, text

from pai.engine import api_keys
from pai.protocol.errors import DeclarationError, NotFound, ValidationFailed
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai.store.store import Store
from pai_api.identity import gate
from support.waiting import wait_until

ANNA = Identity(subject="anna", tenant="acme")


def by_keys(settings: Settings, **update: Any) -> Settings:
    return Settings(**{**settings.model_dump(), "identity": "keys", **update})


@pytest.fixture
async def keyed(settings: Settings) -> AsyncIterator[ServedApi]:
    async with served(by_keys(settings, key_cache=0.05)) as api:
        yield api


async def new_key(api: ServedApi, identity: Identity = ANNA, **options: Any) -> api_keys.NewKey:
    return await api_keys.create_key(api.state.runtime.store, "a key", identity=identity, **options)


async def status(api: ServedApi, token: str) -> int:
    return (await api.client.get(f"{BASE}/threads", headers=bearer(token))).status_code


async def test_a_key_acts_for_its_identity(keyed: ServedApi) -> None:
    anna = bearer((await new_key(keyed)).text)
    same = bearer((await new_key(keyed)).text)
    other_tenant = bearer((await new_key(keyed, Identity(subject="anna"))).text)
    await keyed.client.post(f"{BASE}/threads/t1/send", json=HELLO, headers=anna)
    assert (await keyed.client.get(f"{BASE}/threads/t1", headers=same)).status_code == 200
    assert (await keyed.client.get(f"{BASE}/threads/t1", headers=other_tenant)).status_code == 404


async def test_what_is_no_key_opens_nothing(keyed: ServedApi) -> None:
    key = (await new_key(keyed)).text
    other = (await new_key(keyed)).text
    mixed = f"{key.rsplit('_', 1)[0][:20]}_{other[21:]}"
    wrong = [key[:-1], key + "x", key.swapcase(), f"pai_{'0' * 16}_{'A' * 43}", "pai__", "pai_", "x", mixed, f"{key} x"]
    assert await status(keyed, key) == 200
    assert [await status(keyed, token) for token in wrong] == [401] * len(wrong)
    assert (await keyed.client.get(BASE)).status_code == 401
    assert (await keyed.client.get(BASE, params={"token": key})).status_code == 401


async def test_only_a_hash_of_the_secret_is_kept(store: Store) -> None:
    key = await api_keys.create_key(store, "a key", identity=ANNA)
    async with store.read() as connection:
        [row] = (await connection.execute(text("SELECT * FROM api_key"))).mappings()
    secret = key.text.split("_", 2)[2]
    assert row["secret_hash"] == hashlib.sha256(secret.encode()).hexdigest()
    assert all(secret not in str(value) for value in row.values())


async def test_a_revoked_key_stops_and_stays_revoked(keyed: ServedApi) -> None:
    key = await new_key(keyed)
    assert await status(keyed, key.text) == 200
    store = keyed.state.runtime.store
    revoked = await api_keys.revoke_key(store, key.row.key_id)
    assert (await api_keys.revoke_key(store, key.row.key_id)).revoked_at == revoked.revoked_at

    async def refused() -> bool:
        return await status(keyed, key.text) == 401

    await wait_until(refused)
    with pytest.raises(NotFound):
        await api_keys.revoke_key(store, "0" * 16)


async def test_an_expired_key_stops_at_once(settings: Settings) -> None:
    async with served(by_keys(settings)) as api:
        key = await new_key(api, expires_in=timedelta(seconds=0.3))
        assert await status(api, key.text) == 200

        async def refused() -> bool:
            return await status(api, key.text) == 401

        await wait_until(refused)


async def test_a_request_costs_no_look_at_the_table(settings: Settings) -> None:
    async with served(by_keys(settings)) as api:
        key = (await new_key(api)).text
        assert await status(api, key) == 200
        statements: list[str] = []
        for engine in (api.state.runtime.store._engines.reader, api.state.runtime.store._engines.writer):
            event.listen(
                engine.sync_engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
            )
        answers = await asyncio.gather(*(status(api, key) for _ in range(20)))
        assert answers == [200] * 20
        assert len(statements) >= 20
        assert not [statement for statement in statements if "FROM api_key" in statement]


async def test_of_many_that_show_a_key_at_once_one_asks_the_database(settings: Settings) -> None:
    async with served(by_keys(settings)) as api:
        key = (await new_key(api)).text
        statements: list[str] = []
        for engine in (api.state.runtime.store._engines.reader, api.state.runtime.store._engines.writer):
            event.listen(
                engine.sync_engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
            )
        assert await asyncio.gather(*(status(api, key) for _ in range(20))) == [200] * 20
        assert len([statement for statement in statements if "FROM api_key" in statement]) == 1


async def test_the_last_use_is_noted_now_and_then(keyed: ServedApi) -> None:
    key = await new_key(keyed)
    assert key.row.last_used_at is None
    store = keyed.state.runtime.store
    assert await status(keyed, key.text) == 200

    async def noted() -> int | None:
        row = await api_keys.find_key(store, key.row.key_id)
        return None if row is None else row.last_used_at

    await wait_until(noted)
    first = await noted()
    for _ in range(3):
        assert await status(keyed, key.text) == 200
        await asyncio.sleep(0)
    assert await noted() == first


async def test_keys_are_listed_newest_first(store: Store) -> None:
    made = [(await api_keys.create_key(store, f"key {n}", identity=ANNA)).row.key_id for n in range(3)]
    rows = await api_keys.list_keys(store)
    assert {row.key_id for row in rows} == set(made)
    assert [row.created_at for row in rows] == sorted((row.created_at for row in rows), reverse=True)


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", "\x00"])
async def test_a_key_needs_a_name_that_people_can_read(sqlite_store: Store, name: str) -> None:
    with pytest.raises(ValidationFailed):
        await api_keys.create_key(sqlite_store, name, identity=ANNA)
    assert await api_keys.list_keys(sqlite_store) == []


@pytest.mark.parametrize("identity", [Identity(subject=""), Identity(subject="x" * 2000), Identity(subject="\ud800")])
async def test_a_key_needs_an_identity_that_can_own_something(sqlite_store: Store, identity: Identity) -> None:
    with pytest.raises(ValidationFailed):
        await api_keys.create_key(sqlite_store, "a key", identity=identity)


async def test_keys_and_tokens_may_be_used_together(settings: Settings) -> None:
    async with served(by_keys(settings, identity="jwt, keys", jwt_secret=SECRET)) as api:
        assert await status(api, (await new_key(api)).text) == 200
        assert await status(api, hs256()) == 200
        assert await status(api, "pai_x") == 401
        assert await status(api, "x") == 401


@pytest.mark.parametrize(
    "name", ["anonymous,keys", "keys,keys", "jwt,jwt", "keys,jwt,api_parts:by_header", "jwt,api_parts:by_header", ","]
)
def test_ways_that_do_not_go_together_are_named(settings: Settings, name: str) -> None:
    with pytest.raises(DeclarationError, match="PAI_IDENTITY"):
        gate(by_keys(settings, identity=name, jwt_secret=SECRET))


def test_settings_keep_the_promise_that_a_revoked_key_ends_within_a_minute() -> None:
    with pytest.raises(ValueError, match="at most 60"):
        Settings(key_cache=timedelta(seconds=30), recheck_interval=timedelta(seconds=31))
