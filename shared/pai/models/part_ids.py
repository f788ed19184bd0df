"""Ids of the parts of one step. Those of tool calls and of reasoning are unique within the run."""

from itertools import count


class PartIds:
    """`used` are the ids that the run has already."""

    def __init__(self, used: frozenset[str]) -> None:
        self._used = set(used)
        self._calls: dict[str, str] = {}
        self._texts = count(1)
        self._reasonings = count(1)

    def text(self) -> str:
        return f"text-{next(self._texts)}"

    def reasoning(self) -> str:
        names = (f"reasoning-{number}" for number in self._reasonings)
        return next(name for name in names if name not in self._used)

    def call(self, given: str) -> str:
        """The provider's id of a call, changed only when the run has it already or it is no id."""
        wanted = "".join(character for character in given if character.isprintable())[:180] or "call"
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        self._calls[given] = chosen = next(name for name in names if name not in self._used)
        self._used.add(chosen)
        return chosen

    def called(self, given: str) -> str | None:
        """What `call` made of the provider's id, None for a call of another step."""
        return self._calls.get(given)
