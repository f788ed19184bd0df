"""A process that has imported everything and only forks: what it starts is ready in milliseconds, not in seconds.

Run as a program it reads one JSON request per line and answers each with a process id. When a child ends, its exit code
is written to a file beside its log.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Nursery:
    """Starts API processes and workers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )

    def start(self, kind: str, *, environment: Mapping[str, str], log: Path, **options: Any) -> int:
        """`kind`: api (with `port`) or worker (with `marker`). -> the process id."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"kind": kind, "environment": dict(environment), "log": str(log), **options}
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return int(stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


def exit_file(log: Path) -> Path:
    """Holds the exit code of the process with that log, once it has ended; of a killed one the negative signal."""
    return log.with_suffix(".exit")


def _serve() -> None:
    import uvicorn  # noqa: F401

    import pai_api.app
    import pai_workers.process

    del pai_api, pai_workers
    logs: dict[int, Path] = {}
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    # The handler does nothing: what an ended child leaves is a byte to wake up for, so that only this loop reaps.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([sys.stdin, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(logs)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                break
            request = json.loads(line)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _live(request)
            logs[pid] = Path(request["log"])
            print(pid, flush=True)
    for pid in logs:
        os.kill(pid, signal.SIGKILL)


def _reap(logs: dict[int, Path]) -> None:
    for pid in list(logs):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            file = exit_file(logs.pop(pid))
            draft = file.with_suffix(".draft")
            draft.write_text(str(os.waitstatus_to_exitcode(status)))
            draft.rename(file)


def _live(request: dict[str, Any]) -> None:
    """The child: becomes what was asked for, and never returns."""
    code = 1
    try:
        os.setsid()
        _die_with_parent()
        output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(request["environment"])
        code = _api(request) if request["kind"] == "api" else _worker(request)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    """A nursery that is killed leaves nothing behind (Linux: prctl(2), PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _api(request: dict[str, Any]) -> int:
    import uvicorn

    uvicorn.run("pai_api.app:create", factory=True, host="127.0.0.1", port=request["port"], log_level="warning")
    return 0


def _worker(request: dict[str, Any]) -> int:
    from pai.contract import Registry
    from pai.settings import Settings
    from pai_workers.process import run_worker

    settings = Settings()
    run_worker(settings, Registry.load(settings.agents), on_ready=lambda: Path(request["marker"]).touch())
    return 0


if __name__ == "__main__":
    _serve()
