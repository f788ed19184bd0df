"""Connections to the server that holds the log."""

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

SOCKET_SECONDS = 5.0


def connect(url: str, *, max_connections: int = 16) -> "Redis":
    """A client that never repeats a command by itself: a silent repetition would publish a batch twice.

    The pool makes its callers wait where redis-py's default pool would raise. Close it with `aclose()`.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=SOCKET_SECONDS,
        socket_timeout=SOCKET_SECONDS,
        socket_connect_timeout=SOCKET_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return Redis.from_pool(pool)
