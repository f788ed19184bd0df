"""Times: integer milliseconds inside, ISO 8601 UTC with milliseconds on the wire."""

import time
from datetime import UTC, datetime
from functools import lru_cache


def now_ms() -> int:
    """Milliseconds since the epoch by this host's clock: for records that people read, never for leases or order."""
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=1000)
def iso(ms: int) -> str:
    """`2026-01-31T09:00:00.000Z`."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def from_iso(text: str) -> int:
    """The inverse of `iso`. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
