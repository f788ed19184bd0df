"""Small child processes, and looking at processes from outside."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pai.cli.child import ChildSpec
from pai.cli.lifeline import announce_ready, hold_lifeline


def alive(pid: int) -> bool:
    """Whether the process runs: a zombie that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    except OSError:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    return state not in "ZX"


def scripted_child(folder: Path, name: str, *behaviour: str, **options: object) -> ChildSpec:
    """A child that notes its life in `folder/{name}` and does one thing: see `main`."""
    argv = (sys.executable, __file__, str(folder / name), *behaviour)
    return ChildSpec(name=name, argv=argv, **options)  # type: ignore[arg-type]


def notes(folder: Path, name: str) -> list[str]:
    """The lines that a scripted child has written."""
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def killed_at_end(pids: list[int]) -> Iterator[None]:
    """Whatever happens, nothing of a test outlives it."""
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main(path: str, behaviour: str = "serve") -> None:
    """serve: ready, until SIGTERM. deaf: the same, but SIGTERM does nothing. fail: ends before it is ready. crash: is
    ready and ends. slow: never ready."""
    hold_lifeline()

    def note(line: str) -> None:
        with open(path, "a") as file:
            file.write(f"{line}\n")

    def stop(*_: object) -> None:
        note("told to stop")
        if behaviour != "deaf":
            sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    note(f"started {os.getpid()}")
    if behaviour == "fail":
        sys.exit(3)
    if behaviour != "slow":
        announce_ready()
    if behaviour == "crash":
        sys.exit(4)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
