"""Names and ids of tool calls as every provider takes them in a history, whatever a model made up.

Nothing is changed where a message is stored: there a call is named as the model named it.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from itertools import count
from typing import Any

from pai.contract.names import is_name
from pai.models.tool_parts import tool_name

# 40 characters are the most that every provider takes; some are for the number of an id that comes again.
_ID = re.compile(r"[A-Za-z0-9_-]{1,37}\Z")


def call_name(part: Mapping[str, Any]) -> str:
    """The tool of a part. What is declared keeps its name; of another name as much stays as may."""
    name = tool_name(part)
    if is_name(name):
        return name
    kept = re.sub(r"[^A-Za-z0-9_-]", "_", name[:64])
    return kept if is_name(kept) else f"_{kept[:63]}"


class CallIds:
    """The ids of the calls of one history: unique in it."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def chosen(self, call_id: str, *, same: bool) -> str:
        """For the next call. With `same` the provider that is called made the id, so it takes it as it is."""
        wanted = call_id
        if not same and not _ID.match(call_id):
            wanted = f"call_{sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        chosen = next(name for name in names if name not in self._used)
        self._used.add(chosen)
        return chosen
