"""The engine on both databases and Redis, with workers but without a broker; its rules are checked after every test."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from engine_parts import Engine
from engine_rules import check_rules
from family import Family, family_running

from pai.settings import Settings
from support.servers import PrivateRedis


@pytest.fixture
def engine_settings(any_database_url: str, redis_url: str) -> Settings:
    return settings_for(any_database_url, redis_url)


def settings_for(database_url: str, redis_url: str) -> Settings:
    return Settings(
        database_url=database_url,
        database_pool_size=5,
        redis_url=redis_url,
        output_max_bytes=2000,
        publish_timeout=timedelta(seconds=2),
        max_queued_messages=5,
    )


@pytest.fixture
async def engine(engine_settings: Settings) -> AsyncIterator[Engine]:
    async with Engine.open(engine_settings) as running:
        yield running
        await running.settle()
        await check_rules(running)


@pytest.fixture
async def family(engine_settings: Settings) -> AsyncIterator[Family]:
    async with family_running(engine_settings) as running:
        yield running


@pytest.fixture
async def breakable(any_database_url: str, own_redis: PrivateRedis) -> AsyncIterator[Engine]:
    """An engine whose Redis the test may stop."""
    async with Engine.open(settings_for(any_database_url, own_redis.url)) as running:
        yield running
        own_redis.start()
        await running.settle()
        await check_rules(running)
