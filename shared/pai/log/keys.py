"""The only place that knows the names of keys and channels.

The keys of one thread share a hash tag, so that one script may touch them all on a cluster.
"""

from urllib.parse import quote

SIGNALS_CHANNEL = b"pai:signals"
KEEPALIVE_CHANNEL = b"pai:keepalive"
"""Nobody publishes here: a subscriber that holds it is in subscriber mode also when it watches nothing else."""

_LIVE = b"}:live"


def log_key(version: str) -> bytes:
    """The stream of entries."""
    return b"pai:{%b}:log" % version.encode()


def meta_key(version: str) -> bytes:
    """The hash of epoch, last number, last revision, floor and fences, or the tombstone."""
    return b"pai:{%b}:meta" % version.encode()


def live_channel(version: str) -> bytes:
    """Where every appended batch is announced with its bytes."""
    return b"pai:{%b}:live" % version.encode()


def heads_channel(owner: str, agent: str, *, database: int) -> bytes:
    """Changes of the thread list of one owner and agent. An owner is free text, so it is quoted.

    Channels know nothing of a server's databases, so whoever shares the server in another one would be told as well.
    """
    return f"pai:heads:{database}:{quote(owner, safe='')}:{quote(agent, safe='')}".encode()


def rate_key(owner: str) -> bytes:
    """The bucket that counts an owner's requests."""
    return f"pai:rate:{quote(owner, safe='')}".encode()
