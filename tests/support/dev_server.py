"""A running `paictl dev`, as a person has it in another terminal."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from support.processes import alive
from support.servers import free_port
from support.waiting import wait_until_sync

REPOSITORY = Path(__file__).parents[2]
PAICTL = Path(sys.executable).with_name("paictl")
_READY = re.compile(r"^PAI is ready at (\S+) ", re.MULTILINE)


@dataclass
class DevServer:
    """`start` and `stop` may be called again and again: the data folder and the port stay."""

    home: Path
    agents: str | None = None
    directory: Path = REPOSITORY
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        return self.home.with_suffix(".log")

    @property
    def output(self) -> str:
        """Everything that it printed since the first start."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def argv(self) -> list[str]:
        return [str(PAICTL), "dev", *([self.agents] if self.agents else []), "--port", str(self.port)]

    def start(self) -> None:
        """Returns when it says that it is ready."""
        offset = len(self.output)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.directory,
                env={**os.environ, "PAI_HOME": str(self.home), **self.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self.process
        wait_until_sync(
            lambda: _READY.search(self.output, offset) or process.poll() is not None,
            timeout=timedelta(seconds=60),
            saw=lambda: self.output[offset:],
        )
        if process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode}: {self.output[offset:]}")

    def stop(self, number: int = signal.SIGINT) -> int:
        """What Ctrl-C does; the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(timeout=40)
        self.process = None
        return code

    def kill(self) -> None:
        """The supervisor is gone at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def children(self) -> dict[int, str]:
        """Process id and command line of everything that the supervisor started."""
        if self.process is None:
            return {}
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in pids}
        return {pid: line for pid, line in found.items() if line}

    def child(self, name: str) -> int:
        """The process id of the one child whose command line has that name."""
        (pid,) = [pid for pid, line in self.children().items() if name in line]
        return pid


@contextmanager
def dev_server(home: Path, **options: object) -> Iterator[DevServer]:
    """A server that runs; at the end nothing of it is left."""
    server = DevServer(home, **options)  # type: ignore[arg-type]
    children: dict[int, str] = {}
    try:
        server.start()
        yield server
        children = server.children()
    finally:
        if server.process is not None:
            with suppress(subprocess.TimeoutExpired):
                server.stop()
            server.kill()
    wait_until_sync(lambda: not any(alive(pid) for pid in children), saw=lambda: children)
