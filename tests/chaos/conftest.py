"""A cluster per test, on PostgreSQL where it is reachable and on SQLite otherwise, with a Redis of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from support.cluster import QUICK, Cluster, cluster
from support.databases import on_server
from support.nursery import Nursery
from support.servers import PrivateRedis


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    try:
        on_server("SELECT 1")
    except (OperationalError, ImportError):
        return str(request.getfixturevalue("sqlite_url"))
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def patient(nursery: Nursery, database_url: str, own_redis: PrivateRedis, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with default settings."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(nursery, database_url, own_redis, folder) as made:
        yield made


@pytest.fixture
def chaos(patient: Cluster) -> Cluster:
    """A cluster with short leases."""
    patient.environment = QUICK
    return patient


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    # The server closes what is idle for 5 s, and a request must not be on its way there at that moment.
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    async with httpx.AsyncClient(timeout=httpx.Timeout(30, read=60), limits=limits) as client:
        yield client
