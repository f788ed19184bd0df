"""The thread between a process and the supervisor that started it: ready upwards, the end downwards.

A supervisor that is killed cannot stop its children, so they see to it themselves. They end at once and not gently:
what they held is under leases, and a half-stopped process that keeps a port would be in the way of the next start.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

_READY_FD = "PAI_READY_FD"
_SUPERVISOR = "PAI_SUPERVISOR_PID"
_PR_SET_PDEATHSIG = 1


def lifeline_environment(ready_fd: int) -> Mapping[str, str]:
    """What the supervisor adds to a child's environment. `ready_fd` is the write end of a pipe the child inherits."""
    return {_READY_FD: str(ready_fd), _SUPERVISOR: str(os.getpid())}


def hold_lifeline() -> None:
    """End with the supervisor, if there is one. Called first thing, from the main thread."""
    supervisor = os.environ.pop(_SUPERVISOR, None)
    if supervisor is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(int(supervisor),), name="lifeline", daemon=True).start()
    if os.getppid() != int(supervisor):  # it died before the line was held
        os.kill(os.getpid(), signal.SIGKILL)


def _watch_parent(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def announce_ready() -> None:
    """Tell the supervisor that this process does its work now. Without one, or a second time, does nothing."""
    ready_fd = os.environ.pop(_READY_FD, None)
    if ready_fd is not None:
        with os.fdopen(int(ready_fd), "wb") as pipe:
            pipe.write(b"ready\n")
