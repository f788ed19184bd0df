"""Databases for tests: each test gets an empty one with the schema of now, copied from a template made once.

Name this module in `pytest_plugins` to have the fixtures.
"""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel

from pai.store.schema import head_revision, upgrade
from pai.store.store import Store
from support.servers import missing

POSTGRES_URL = os.environ.get("PAI_TEST_DATABASE_URL", "postgresql+psycopg://root@127.0.0.1:5432/postgres")

_numbers = count(1)
_END_OTHERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


def on_server(statement: str) -> None:
    """Runs one statement as the test server's administrator, outside of a transaction."""
    engine = create_engine(make_url(POSTGRES_URL), isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()


@contextmanager
def postgres_database(*, template: str = "template1") -> Iterator[URL]:
    """A new database on the test server, dropped at the end together with the connections left to it."""
    name = f"pai_test_{os.getpid()}_{next(_numbers)}"
    on_server(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield make_url(POSTGRES_URL).set(database=name)
    finally:
        on_server(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class PostgresDatabases:
    """Migrated databases, copied from a template. One that a test left in order is emptied and serves the next test."""

    def __init__(self, stack: ExitStack, template: str) -> None:
        self._stack = stack
        self._template = template
        self._head = head_revision()
        self._free: list[URL] = []

    def take(self) -> URL:
        return self._free.pop() if self._free else self._stack.enter_context(postgres_database(template=self._template))

    def give_back(self, url: URL) -> None:
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text(_END_OTHERS))
            if connection.execute(text("SELECT version_num FROM alembic_version")).scalar() != self._head:
                return
            for table in reversed(SQLModel.metadata.sorted_tables):
                connection.execute(table.delete())
        self._free.append(url)


@pytest.fixture(scope="session")
def _postgres_server() -> None:
    try:
        on_server("SELECT 1")
    except (OperationalError, ImportError):
        missing(f"PostgreSQL at {make_url(POSTGRES_URL).render_as_string()}")


@pytest.fixture(scope="session")
def _postgres_databases(_postgres_server: None) -> Iterator["PostgresDatabases"]:
    with ExitStack() as stack:
        template = stack.enter_context(postgres_database())
        upgrade(_text(template))
        yield PostgresDatabases(stack, str(template.database))


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("schema") / "pai.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture
def bare_postgres_url(_postgres_server: None) -> Iterator[str]:
    """A PostgreSQL database without any table."""
    with postgres_database() as url:
        yield _text(url)


@pytest.fixture
def postgres_url(_postgres_databases: "PostgresDatabases") -> Iterator[str]:
    """A migrated, empty PostgreSQL database."""
    url = _postgres_databases.take()
    yield _text(url)
    _postgres_databases.give_back(url)


@pytest.fixture
def sqlite_url(_sqlite_template: Path, tmp_path: Path) -> str:
    """A migrated, empty SQLite database."""
    file = tmp_path / "store" / "pai.db"
    file.parent.mkdir()
    shutil.copy(_sqlite_template, file)
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database_url(request: pytest.FixtureRequest) -> str:
    """The same test on SQLite and on PostgreSQL."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def bare_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same test on SQLite and on PostgreSQL, in a database without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bare.db'}"
    url: str = request.getfixturevalue("bare_postgres_url")
    return url


@pytest.fixture
async def store(any_database_url: str) -> AsyncIterator[Store]:
    """A store on SQLite and on PostgreSQL."""
    async with Store.open(any_database_url) as opened:
        yield opened


@pytest.fixture
async def sqlite_store(sqlite_url: str) -> AsyncIterator[Store]:
    async with Store.open(sqlite_url) as opened:
        yield opened


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[Store]:
    async with Store.open(postgres_url) as opened:
        yield opened


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
