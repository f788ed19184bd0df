"""Fault points: places where a test makes the process die, to show that dying there is harmless."""

import os


class Faults:
    """`spec`: comma-separated `point` or `point:n` (die when the point is reached for the n-th time). Empty: never."""

    def __init__(self, spec: str) -> None:
        self._left: dict[str, int] = {}
        for item in filter(None, spec.split(",")):
            point, _, count = item.partition(":")
            self._left[point] = int(count or 1)

    def hit(self, point: str) -> None:
        """Ends the process here, without any clean-up, when the point's turn has come."""
        if point not in self._left:
            return
        self._left[point] -= 1
        if self._left[point] == 0:
            os._exit(137)
