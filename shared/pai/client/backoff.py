"""How long to wait before trying again: longer each time, and never in step with everybody else."""

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffSettings:
    """The n-th wait is between half and all of `first * 2**n`, at most `most`."""

    first: timedelta = timedelta(milliseconds=200)
    most: timedelta = timedelta(seconds=10)


class Backoff:
    """Counts the failures since the last success."""

    def __init__(self, settings: BackoffSettings = BackoffSettings()) -> None:
        self._settings = settings
        self.failures = 0

    def next(self, *, at_least: float = 0.0) -> float:
        """Seconds to wait before the next try. `at_least`: what the other side asked for."""
        whole: float = self._settings.first.total_seconds() * 2 ** min(self.failures, 30)
        self.failures += 1
        wait = min(whole, self._settings.most.total_seconds()) * random.uniform(0.5, 1.0)
        return max(wait, at_least)

    def reset(self) -> None:
        self.failures = 0
