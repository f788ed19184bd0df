"""What is measured: PostgreSQL and Redis as they run on this host, API and worker processes of their own."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import redis
from sqlalchemy import make_url

from pai.store.schema import upgrade

POSTGRES = os.environ.get("PAI_TEST_DATABASE_URL", "postgresql+psycopg://root@127.0.0.1:5432/postgres")
REDIS = os.environ.get("PAI_BENCH_REDIS_URL", "redis://127.0.0.1:6379/7")
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """A context manager: a new database, an empty Redis database, `workers` workers and one API process."""

    def __init__(self, *, workers: int = 1, redis_url: str = REDIS, postgres: str = POSTGRES) -> None:
        self.port = free_port()
        self.name = f"pai_bench_{uuid.uuid4().hex[:12]}"
        self._admin = make_url(postgres)
        self.database = self._admin.set(database=self.name).render_as_string(hide_password=False)
        self.redis_url = redis_url
        self.folder = Path(tempfile.mkdtemp(prefix=self.name))
        self.stopped_file = self.folder / "stopped"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.worker_start_ms = 0.0
        self._workers = workers

    @property
    def api(self) -> int:
        return self.processes["api"].pid

    @property
    def worker(self) -> int:
        return self.processes["worker-0"].pid

    def __enter__(self) -> Self:
        self._execute(f'CREATE DATABASE "{self.name}"')
        redis.Redis.from_url(self.redis_url).flushdb()
        upgrade(self.database)
        try:
            self.start_api()
            for index in range(self._workers):
                self.start_worker(index)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        self._execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')
        redis.Redis.from_url(self.redis_url).flushdb()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PAI_")},
            "PAI_DATABASE_URL": self.database,
            "PAI_REDIS_URL": self.redis_url,
            "PAI_AGENTS": "tests.bench.agents:registry",
            "PAI_PORT": str(self.port),
            "PAI_LOG_LEVEL": "ERROR",
            "PAI_HOME": str(self.folder / "home"),
            "PAI_BENCH_STOPPED": str(self.stopped_file),
            "PYTHONWARNINGS": "ignore",
        }

    def start_api(self) -> None:
        self._spawn("api", "-m", "uvicorn", "--factory", "pai_api.app:create", *self._uvicorn())
        self._wait_for_port(self.port)

    def start_worker(self, index: int) -> None:
        started = time.perf_counter()
        marker = self.folder / f"ready-{index}"
        code = (
            "from pathlib import Path;from pai.settings import Settings;from pai.contract import Registry;"
            "from pai_workers.process import run_worker;s=Settings();"
            f"run_worker(s,Registry.load(s.agents),on_ready=lambda:Path({str(marker)!r}).touch())"
        )
        self._spawn(f"worker-{index}", "-c", code)
        self._wait_until(marker.exists, "the worker")
        self.worker_start_ms = (time.perf_counter() - started) * 1000
        marker.unlink()

    def _uvicorn(self) -> list[str]:
        return ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "error", "--no-access-log"]

    def _spawn(self, name: str, *arguments: str) -> None:
        self.processes[name] = subprocess.Popen(
            [sys.executable, *arguments], env=self.environment(), cwd=ROOT, stdout=subprocess.DEVNULL
        )

    def _wait_for_port(self, port: int) -> None:
        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self._wait_until(answers, "the API")

    def _wait_until(self, ready: object, what: str) -> None:
        deadline = time.monotonic() + 60
        while not ready():  # type: ignore[operator]
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes.values()):
                raise RuntimeError(f"{what} did not start")
            time.sleep(0.01)

    def _execute(self, statement: str) -> None:
        url = self._admin.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
