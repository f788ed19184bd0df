"""What every other test relies on: nothing leaves this host, and waiting tells what it saw."""

import asyncio
import os
import socket
from datetime import timedelta

import httpx
import pytest

from support.lines import line_of
from support.network import OutsideRequest, is_local
from support.servers import PrivateRedis, answers, missing
from support.waiting import wait_until, wait_until_sync

SOON = timedelta(milliseconds=50)


@pytest.mark.parametrize("address", [("192.0.2.1", 443), ("2001:db8::1", 443, 0, 0)])
def test_no_other_host_is_connected_to(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as client, pytest.raises(OutsideRequest):
        client.connect(address)


async def test_no_other_host_is_looked_up() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(OutsideRequest, match=r"api\.example\.com"):
            await client.get("https://api.example.com/")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "0.0.0.0", b"localhost"])
def test_loopback_is_local(host: str | bytes) -> None:
    assert is_local(host)


def test_no_key_and_no_setting_of_this_machine_reaches_a_test() -> None:
    found = {name for name in os.environ if name.startswith(("PAI_", "OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_"))}
    assert {name for name in found if not name.startswith("PAI_TEST_")} == {"PAI_HOME"}


async def test_waiting_returns_the_first_true_value() -> None:
    values = iter([0, "", "there"])
    assert await wait_until(lambda: next(values)) == "there"

    async def later() -> int:
        await asyncio.sleep(0)
        return 7

    assert await wait_until(later) == 7


async def test_waiting_in_vain_tells_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"was still 0 after 0\.05 s; saw 'nothing'"):
        await wait_until(lambda: 0, timeout=SOON, saw=lambda: "nothing")
    with pytest.raises(AssertionError, match=r"was still \[\] after 0\.05 s$"):
        wait_until_sync(list, timeout=SOON)


def test_a_missing_server_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Redis is not there"):
        missing("Redis")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have it"):
        missing("Redis")


def test_a_private_server_comes_back_empty_under_the_same_url(own_redis: PrivateRedis) -> None:
    url = own_redis.url
    own_redis.stop()
    assert not answers(url)
    own_redis.start()
    assert answers(url)
    assert own_redis.url == url


def test_tests_that_share_a_server_are_a_line_and_most_others_are_not() -> None:
    chat, unit = "tests/e2e/test_chat.py", "tests/unit/test_pace.py"
    assert line_of(f"{chat}::test_a") == line_of(f"{chat}::test_b[x::y]") != line_of("tests/e2e/test_dev.py::test_a")
    assert line_of(f"{unit}::test_a") != line_of(f"{unit}::test_b")
    assert len({line_of(f"tests/chaos/test_{'x' * n}.py::test_a") for n in range(9)}) == 2
