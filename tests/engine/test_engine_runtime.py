"""What a process does when it ends: nothing that it began outlives the connections that it uses."""

import asyncio

import pytest

from pai.contract import Agent, Registry
from pai.engine.runtime import Runtime
from pai.settings import Settings
from support.waiting import wait_until


@pytest.fixture
def registry() -> Registry:
    return Registry(Agent("main", model="demo"))


async def test_what_ends_soon_is_waited_for_and_has_its_store(engine_settings: Settings, registry: Registry) -> None:
    found: list[int] = []
    async with Runtime.open(engine_settings, registry) as runtime:

        async def look() -> None:
            await asyncio.sleep(0.05)
            async with runtime.store.read() as connection:
                found.append((await connection.exec_driver_sql("SELECT 7")).scalar_one())

        runtime.spawn(look())
    assert found == [7]


async def test_what_does_not_end_is_cut_off_before_its_store_is_closed(
    engine_settings: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Runtime.settle
    monkeypatch.setattr(Runtime, "settle", lambda runtime: settle(runtime, timeout=0.1))
    looks = 0
    async with Runtime.open(engine_settings, registry) as runtime:

        async def look_forever() -> None:
            nonlocal looks
            while True:
                async with runtime.store.read() as connection:
                    await connection.exec_driver_sql("SELECT 1")
                looks += 1

        runtime.spawn(look_forever())
        await wait_until(lambda: looks)
    ended = looks
    await asyncio.sleep(0.05)
    assert looks == ended
    assert not [task for task in asyncio.all_tasks() if "look_forever" in str(task.get_coro())]
