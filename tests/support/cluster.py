"""A cluster of real processes: API processes and workers of a test's own, to kill, freeze and start again."""

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from support.chaos_agents import GO
from support.nursery import Nursery, exit_file
from support.servers import PrivateRedis, free_port
from support.waiting import wait_until_sync

START = timedelta(seconds=60)
"""How long a process may take to start, on a host that has much else to do."""

QUICK = {
    "PAI_LEASE": "3",
    "PAI_RENEW_INTERVAL": "0.5",
    "PAI_SWEEP_INTERVAL": "0.25",
    "PAI_CHECK_INTERVAL": "1",
    "PAI_DRAIN_SECONDS": "1",
}
"""For tests of what happens, not of when."""


@dataclass
class Node:
    """One process. `port` is an API's; a worker has a `marker`, a file that says it is ready."""

    name: str
    pid: int
    log: Path
    port: int = 0
    marker: Path | None = None

    @property
    def url(self) -> str:
        """The base of the agent `main`."""
        return f"http://127.0.0.1:{self.port}/api/pai/main"

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Negative for the signal that killed it."""
        file = exit_file(self.log)
        return int(file.read_text()) if file.exists() else None

    def ready(self) -> "Node":
        """Returns when it listens, or takes steps."""
        wait_until_sync(lambda: self._is_ready() or not self.alive, timeout=START, saw=self.output)
        assert self.alive, self.output()
        return self

    def _is_ready(self) -> bool:
        if self.marker is not None:
            return self.marker.exists()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """As `kill -9`: nothing is cleaned up."""
        self._signal(signal.SIGKILL)
        wait_until_sync(lambda: not self.alive)

    def terminate(self) -> None:
        """As an operator stops it."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self.alive, self.output()
        os.kill(self.pid, number)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Cluster:
    """Processes on one database and one Redis. `environment` goes to all of them."""

    nursery: Nursery
    database_url: str
    redis: PrivateRedis
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def start_api(self, *, port: int = 0, **environment: str) -> Node:
        """An API process that may not listen yet, on a free port unless told."""
        port = port or free_port()
        return self._start("api", environment, port=port)

    def start_worker(self, **environment: str) -> Node:
        """A worker that may not take steps yet."""
        marker = self.folder / f"ready-{len(self.nodes)}"
        return self._start("worker", environment, marker=marker)

    def api(self, **environment: str) -> Node:
        return self.start_api(port=0, **environment).ready()

    def worker(self, **environment: str) -> Node:
        return self.start_worker(**environment).ready()

    def pair(self, **environment: str) -> tuple[Node, Node]:
        """An API process and a worker, started at the same time; `environment` is the worker's."""
        api, worker = self.start_api(), self.start_worker(**environment)
        return api.ready(), worker.ready()

    def go(self) -> None:
        """Lets go what the agents hold."""
        (self.folder / GO).touch()

    def traces(self, name: str) -> list[int]:
        """One process id per execution of what leaves this trace; `*` matches anything."""
        return [int(file.read_text() or 0) for file in self.folder.glob(f"{name}@*")]

    def output(self) -> str:
        """What all processes have logged."""
        return "\n".join(f"--- {node.name} ({node.pid})\n{node.output()}" for node in self.nodes)

    def _start(self, kind: str, environment: Mapping[str, str], *, port: int = 0, marker: Path | None = None) -> Node:
        name = f"{kind}-{len(self.nodes)}"
        log = self.folder / f"{name}.log"
        pid = self.nursery.start(
            kind,
            log=log,
            port=port,
            marker=str(marker),
            environment={
                **{key: value for key, value in os.environ.items() if not key.startswith("PAI_")},
                "PAI_HOME": str(self.folder / "home"),
                "PAI_DATABASE_URL": self.database_url,
                # Many processes of several tests at once share a server that has a hundred connections.
                "PAI_DATABASE_POOL_SIZE": "4",
                "PAI_REDIS_URL": self.redis.url,
                "PAI_AGENTS": "support.chaos_agents:registry",
                "CHAOS_FOLDER": str(self.folder),
                **self.environment,
                **environment,
            },
        )
        node = Node(name, pid, log, port, marker)
        self.nodes.append(node)
        return node

    def close(self) -> None:
        for node in self.nodes:
            if node.alive:
                node.kill()


@contextmanager
def cluster(nursery: Nursery, database_url: str, redis: PrivateRedis, folder: Path) -> Iterator[Cluster]:
    """Everything that was started is gone at the end."""
    made = Cluster(nursery, database_url, redis, folder)
    try:
        yield made
    finally:
        made.close()
