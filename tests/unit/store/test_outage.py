"""A database that goes away is `Unavailable`, and the store works again by itself when it is back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from rows import THREAD, thread
from sqlalchemy import bindparam, exc, func, insert, make_url, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.protocol.errors import Unavailable
from pai.store.errors import Contended
from pai.store.schema import current_revision
from pai.store.store import Store, execute_all
from support.databases import on_server
from support.proxy import Proxy, proxy_in_thread
from support.servers import free_port

BUMP = update(THREAD).where(THREAD.c.version == bindparam("v")).values(revision=THREAD.c.revision + 1)
READ = select(THREAD.c.revision)


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    url = make_url(postgres_url)
    async with Proxy.to(url.host or "127.0.0.1", url.port or 5432) as proxy:
        yield proxy


@pytest.fixture
async def store(postgres_url: str, proxy: Proxy) -> AsyncIterator[Store]:
    url = make_url(postgres_url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    async with Store.open(url, pool_size=4, max_overflow=0) as store:
        async with store.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
        yield store


async def bump(connection: AsyncConnection) -> None:
    await connection.execute(BUMP, {"v": "v"})


async def revision(store: Store) -> int:
    async with store.read() as connection:
        found: int = (await connection.execute(READ)).scalar_one()
        return found


async def read_singly(store: Store) -> None:
    async with store.autocommit() as connection:
        await connection.execute(READ)


async def test_a_database_that_never_answered_is_unavailable() -> None:
    async with Store.open(f"postgresql://root@127.0.0.1:{free_port()}/nothing") as store:
        with pytest.raises(Unavailable) as raised:
            await store.run_write(bump)
        assert raised.value.status == 503
        assert raised.value.retry_after > 0


async def test_every_kind_of_transaction_is_unavailable_in_an_outage(store: Store, proxy: Proxy) -> None:
    await proxy.cut()
    for use in (store.run_write(bump), revision(store), read_singly(store)):
        with pytest.raises(Unavailable):
            await use


async def test_the_store_works_again_after_an_outage(store: Store, proxy: Proxy) -> None:
    await asyncio.gather(*(store.run_write(bump) for _ in range(4)))  # several connections
    await proxy.cut()
    with pytest.raises(Unavailable):
        await store.run_write(bump)
    await proxy.restore()
    await asyncio.gather(*(store.run_write(bump) for _ in range(8)))
    assert await revision(store) == 12


async def test_an_outage_that_nobody_noticed_costs_no_request(store: Store, proxy: Proxy) -> None:
    await asyncio.gather(*(store.run_write(bump) for _ in range(4)))
    await proxy.cut()
    await proxy.restore()
    await asyncio.gather(*(store.run_write(bump) for _ in range(4)), read_singly(store))
    assert await revision(store) == 8


async def test_an_outage_in_the_middle_of_a_transaction_undoes_it(store: Store, proxy: Proxy) -> None:
    async def lose(connection: AsyncConnection) -> None:
        await bump(connection)
        await proxy.cut()
        await bump(connection)

    with pytest.raises(Unavailable):
        await store.run_write(lose)
    await proxy.restore()
    assert await revision(store) == 0


@pytest.mark.parametrize("put_off", [False, True])
async def test_an_outage_before_the_commit_is_unavailable(store: Store, proxy: Proxy, *, put_off: bool) -> None:
    async def lose(connection: AsyncConnection) -> None:
        await bump(connection)
        if put_off:
            await execute_all(connection, [(BUMP, {"v": "v"})])
        await proxy.cut()

    with pytest.raises(Unavailable):
        await store.run_write(lose)
    await proxy.restore()
    assert await revision(store) == 0


async def test_a_connection_that_the_server_ends_is_replaced(store: Store) -> None:
    async with store.autocommit() as connection:
        name = (await connection.execute(select(func.current_database()))).scalar_one()
    end = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
    await asyncio.to_thread(on_server, end)
    await store.run_write(bump)

    async def lose(connection: AsyncConnection) -> None:
        await bump(connection)
        await asyncio.to_thread(on_server, end)
        await bump(connection)

    with pytest.raises(Unavailable):
        await store.run_write(lose)
    assert await revision(store) == 1


async def test_a_primary_that_became_read_only_is_unavailable_and_left(store: Store) -> None:
    async def backend() -> int:
        async with store.autocommit() as connection:
            found: int = (await connection.execute(select(func.pg_backend_pid()))).scalar_one()
            return found

    before = await backend()
    async with store.autocommit() as connection:
        await connection.execute(text("SET default_transaction_read_only = on"))
    with pytest.raises(Unavailable):
        await store.run_write(bump)
    assert await backend() != before
    await store.run_write(bump)


async def test_a_lock_that_is_held_too_long_is_contended(postgres_url: str) -> None:
    impatient = make_url(postgres_url).update_query_dict({"options": "-c lock_timeout=50ms"})
    async with Store.open(impatient.render_as_string(hide_password=False)) as store:
        async with store.write() as connection:
            await connection.execute(insert(THREAD), thread("v"))
        async with store.write() as connection:
            await bump(connection)
            with pytest.raises(Contended):
                await store.run_write(bump)
        await store.run_write(bump)
        assert await revision(store) == 2


async def test_no_free_connection_is_unavailable(any_database_url: str) -> None:
    patience = timedelta(milliseconds=50)
    async with Store.open(any_database_url, pool_size=1, max_overflow=0, pool_timeout=patience) as store:
        held = store.write()
        await held.__aenter__()
        with pytest.raises(Unavailable, match="in use"):
            await store.run_write(bump)
        await held.__aexit__(None, None, None)


async def test_a_missing_table_is_no_outage(bare_database_url: str) -> None:
    async with Store.open(bare_database_url) as store:
        with pytest.raises(exc.DBAPIError):
            await store.run_write(bump)


async def test_a_sqlite_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    async with Store.open(f"sqlite:///{tmp_path / 'folder'}") as store:
        (tmp_path / "folder").mkdir()
        with pytest.raises(Unavailable):
            await store.run_write(bump)


def test_the_schema_of_a_database_that_is_away_is_unavailable(postgres_url: str) -> None:
    url = make_url(postgres_url)
    with proxy_in_thread(url.host or "127.0.0.1", url.port or 5432) as proxy:
        proxied = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        assert current_revision(proxied) is not None
        proxy.cut()
        with pytest.raises(Unavailable):
            current_revision(proxied)
        proxy.restore()
        assert current_revision(proxied) is not None
