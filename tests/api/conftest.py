"""The API on a real server, SQLite and Redis. No worker runs: what a test needs of one, it publishes itself."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_parts import ServedApi, served

from pai.settings import Settings
from pai.store.schema import upgrade


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("schema") / "pai.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture
def database_url(_empty_database: Path, tmp_path: Path) -> str:
    """A database of the test's own, with the schema of now."""
    file = tmp_path / "pai.db"
    shutil.copy(_empty_database, file)
    return f"sqlite:///{file}"


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[ServedApi]:
    async with served(settings) as running:
        yield running
