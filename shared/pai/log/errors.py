"""What can go wrong with the event log.

PaiError
└── LogError             the server refused a command for a reason that repeating does not cure
    ├── LogUnavailable   the server cannot be reached, or cannot write now: try again later
    └── Fenced           this attempt of the step lost its right to publish
"""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pai.protocol.errors import PaiError

_TRANSIENT = ("OOM", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS")


class LogError(PaiError):
    """The server refused a command, and repeating it would not help."""

    code = "log_error"
    title = "The event log failed"


class LogUnavailable(LogError):
    """The server cannot be reached, or cannot write at present. Whether the command was executed is unknown."""

    code = "unavailable"
    status = 503
    title = "The event log is unreachable"


class Fenced(LogError):
    """A newer attempt owns the step, the step is settled, or the thread was deleted: abandon the work."""

    code = "fenced"
    title = "This attempt of the step was taken over"

    def __init__(self, detail: str | None = None, *, deleted: bool = False) -> None:
        super().__init__(detail)
        self.deleted = deleted


def log_error(error: Exception) -> LogError:
    """The typed error of what redis-py raised or returned in a pipeline."""
    if isinstance(error, LogError):
        return error
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
        return LogUnavailable(text)
    # redis-py turns some codes into classes, others stay in the text; an error inside a script carries the code of the
    # command that failed, after a prefix that differs between servers.
    if isinstance(error, ResponseError) and any(code in text for code in _TRANSIENT):
        return LogUnavailable(text)
    name = type(error).__name__
    if name in {"BusyLoadingError", "ReadOnlyError", "OutOfMemoryError", "MasterDownError", "ClusterDownError"}:
        return LogUnavailable(text)
    return LogError(text)


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Everything that redis-py raises leaves as LogError or LogUnavailable."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise log_error(error) from error
