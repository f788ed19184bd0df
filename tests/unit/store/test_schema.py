"""The schema: migrations say what the tables say, upgrade is safe to repeat, and an older one is refused."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from alembic import command
from sqlalchemy import create_engine, inspect, text

from pai.protocol.errors import PaiError
from pai.store.database import database_url
from pai.store.errors import DatabaseInvalid, SchemaOutdated
from pai.store.schema import alembic_config, check_schema, connection, current_revision, head_revision, upgrade
from pai.store.store import Store


def test_a_bare_database_has_no_revision_and_an_upgraded_one_the_newest(bare_database_url: str) -> None:
    assert current_revision(bare_database_url) is None
    assert upgrade(bare_database_url) == head_revision()
    assert current_revision(bare_database_url) == head_revision()


def test_an_upgrade_may_be_repeated(any_database_url: str) -> None:
    assert upgrade(any_database_url) == upgrade(any_database_url) == current_revision(any_database_url)


def test_the_migrations_make_what_the_tables_declare(any_database_url: str) -> None:
    with connection(any_database_url) as connected:
        command.check(alembic_config(connected))  # raises when it would write another migration


def test_a_database_can_be_downgraded_to_nothing(any_database_url: str) -> None:
    with connection(any_database_url) as connected:
        command.downgrade(alembic_config(connected), "base")
    with connection(any_database_url) as connected:
        assert inspect(connected).get_table_names() == ["alembic_version"]
    upgrade(any_database_url)


def test_processes_may_upgrade_at_the_same_time(bare_database_url: str) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert set(pool.map(upgrade, [bare_database_url] * 2)) == {head_revision()}


async def test_a_database_of_now_passes_the_check(store: Store) -> None:
    await check_schema(store)


async def test_a_database_without_a_schema_is_refused(bare_database_url: str) -> None:
    async with Store.open(bare_database_url) as store:
        with pytest.raises(SchemaOutdated, match=r"has no schema.*paictl db upgrade") as raised:
            await check_schema(store)
    assert isinstance(raised.value, PaiError)
    assert (raised.value.current, raised.value.head) == (None, head_revision())


async def test_a_database_of_another_revision_is_refused(any_database_url: str) -> None:
    engine = create_engine(database_url(any_database_url, sync=True))
    with engine.begin() as connected:
        connected.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    engine.dispose()
    async with Store.open(any_database_url) as store:
        with pytest.raises(SchemaOutdated, match=r"revision 0000.*paictl db upgrade"):
            await check_schema(store)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///pai.db", "sqlite+aiosqlite"),
        ("sqlite+pysqlite:///pai.db", "sqlite+aiosqlite"),
        ("postgresql://root@localhost/pai", "postgresql+psycopg"),
        ("postgres://root@localhost/pai", "postgresql+psycopg"),
        ("postgresql+asyncpg://root@localhost/pai", "postgresql+psycopg"),
    ],
)
def test_a_url_names_the_database_and_not_the_driver(url: str, driver: str) -> None:
    assert database_url(url).drivername == driver


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://root@localhost/pai",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
    ],
)
async def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(DatabaseInvalid):
        database_url(url)
    with pytest.raises(DatabaseInvalid):
        async with Store.open(url):
            pass
    with pytest.raises(DatabaseInvalid):
        upgrade(url)
