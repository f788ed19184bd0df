"""What every test gets: a clean environment, no way to the outside, and servers to talk to."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from support.lines import line_of
from support.network import stay_on_loopback
from support.servers import REDIS_URL, PrivateRedis, answers, embedded_binary, missing, private_redis

pytest_plugins = ["support.databases", "support.file_stores"]

_SECRETS = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AZURE_OPENAI_")


def pytest_configure(config: pytest.Config) -> None:
    for name in list(os.environ):
        if name.startswith(_SECRETS) or (name.startswith("PAI_") and not name.startswith("PAI_TEST_")):
            del os.environ[name]
    stay_on_loopback()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what runs in its background. Processes that tests start and interrupt would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that start many processes run in few lines, beside all others; the longest lines begin first."""
    from xdist.scheduler import LoadScopeScheduling

    class Lines(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return line_of(nodeid)

    return Lines(config, log)


@pytest.fixture(autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets in the environment ends with it, and nothing is written to anybody's real data folder."""
    monkeypatch.setenv("PAI_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    """The host's Redis where it answers, else a private one."""
    if answers(REDIS_URL):
        yield REDIS_URL
    else:
        with private_redis() as server:
            yield f"redis://127.0.0.1:{server.port}"


@pytest.fixture
def redis_url(_redis_server: str) -> Iterator[str]:
    """An empty database of a Redis-compatible server, shared with nobody for the length of the test.

    Channels are not scoped by database: tests that must be alone on them, or that flush or stop the server, take
    `own_redis`.
    """
    with redis.Redis.from_url(_redis_server, db=0) as registry:
        number = next(n for n in range(1, 16) if registry.set(f"pai-test:database:{n}", os.getpid(), nx=True, ex=300))
        try:
            with redis.Redis.from_url(_redis_server, db=number) as client:
                client.flushdb()
            yield f"{_redis_server.rstrip('/')}/{number}"
        finally:
            registry.delete(f"pai-test:database:{number}")


@pytest.fixture
def own_redis() -> Iterator[PrivateRedis]:
    """A server of the test's own, which it may flush, stop, freeze and start again."""
    with private_redis() as server:
        yield server


@pytest.fixture(params=["redis", "embedded"])
def any_redis(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same test on the host's Redis and on the embedded server."""
    if request.param == "redis":
        if not answers(REDIS_URL):
            missing(f"Redis at {REDIS_URL}")
        yield request.getfixturevalue("redis_url")
    else:
        binary = embedded_binary()
        if binary is None:
            missing("the extra [embedded]")
        with private_redis(binary) as server:
            yield server.url
