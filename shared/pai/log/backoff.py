"""Waiting longer and longer while the server is away, never in step with other processes."""

import logging
import random
from datetime import timedelta

FIRST = timedelta(milliseconds=20)
LONGEST = timedelta(seconds=1)


class Backoff:
    """Doubling delays with jitter, up to a second. `succeeded()` when it worked, `failed(...)` when not.

    An outage is two lines in the log, when it begins and when it is over, however many attempts there were.
    """

    def __init__(
        self, logger: logging.Logger, what: str, *, first: timedelta = FIRST, longest: timedelta = LONGEST
    ) -> None:
        self._logger = logger
        self._what = what
        self._first = first.total_seconds()
        self._longest = longest.total_seconds()
        self._next = self._first
        self._failing = False

    def succeeded(self) -> None:
        if self._failing:
            self._logger.info("%s: it works again", self._what)
        self._failing = False
        self._next = self._first

    def failed(self, error: BaseException) -> float:
        """Seconds to wait before the next attempt."""
        if not self._failing:
            self._logger.warning("%s: %s", self._what, error)
        self._failing = True
        delay = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        return delay
