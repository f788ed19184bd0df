"""The parts of one message, with an index for every way in which a chunk looks for one.

A part that was handed out is never changed: a change puts a new object in its place, so that consumers can share
structure. Nothing here scans the message, however long it is.
"""

from bisect import insort
from typing import Any, Protocol

Part = dict[str, Any]

STEP_START = "step-start"
DYNAMIC = "dynamic-tool"


class Pending(Protocol):
    """Has what a part in the list lacks."""

    def render(self, part: Part, *, javascript: bool) -> Part: ...


def is_tool(part: Part) -> bool:
    kind = part.get("type")
    named = kind == DYNAMIC or (isinstance(kind, str) and kind.startswith("tool-"))
    return named and isinstance(part.get("toolCallId"), str)


class Parts:
    """The list of parts; the *current step* is what follows the last step-start, or everything."""

    def __init__(self, parts: list[Part], *, javascript: bool) -> None:
        self.items: list[Part] = []
        self._javascript = javascript
        self._pending: dict[int, Pending] = {}
        self._step_begin = 0
        # The first part of the current step with a call id, by kind.
        self._static: dict[str, int] = {}
        self._dynamic: dict[str, int] = {}
        # All parts of the message with a call id or an approval id, ascending.
        self._calls: dict[str, list[int]] = {}
        self._approvals: dict[str, list[int]] = {}
        self._data: dict[tuple[str, str], int] = {}
        for part in parts:
            self.append(part)

    def append(self, part: Part) -> int:
        index = len(self.items)
        self.items.append(part)
        kind = part.get("type")
        if kind == STEP_START:
            self._step_begin = index + 1
            self._static, self._dynamic = {}, {}
        elif is_tool(part):
            call_id = part["toolCallId"]
            (self._dynamic if kind == DYNAMIC else self._static).setdefault(call_id, index)
            self._calls.setdefault(call_id, []).append(index)
            self._enter_approval(part, index)
        elif isinstance(kind, str) and kind.startswith("data-") and isinstance(part.get("id"), str):
            self._data.setdefault((kind, part["id"]), index)
        return index

    def replace(self, index: int, part: Part) -> None:
        """`part` has the type (kind of type, for a tool) and the ids of the one that it replaces."""
        old = self.items[index]
        self.items[index] = part
        if old.get("approval") is not part.get("approval"):
            self._leave_approval(old, index)
            self._enter_approval(part, index)

    def in_step(self, call_id: str, *, dynamic: bool) -> int | None:
        """The first tool part of that kind with that id in the current step."""
        return (self._dynamic if dynamic else self._static).get(call_id)

    def any_in_step(self, call_id: str) -> int | None:
        """The first tool part of either kind with that id in the current step."""
        found = [index for kind in (self._static, self._dynamic) if (index := kind.get(call_id)) is not None]
        return min(found, default=None)

    def call(self, call_id: str) -> int | None:
        """The part that an output belongs to: in the current step the first one, else the last of the message."""
        index = self.any_in_step(call_id)
        if index is None and (indexes := self._calls.get(call_id)):
            return indexes[-1]
        return index

    def approval(self, approval_id: str) -> int | None:
        """The first tool part of the message with that approval."""
        indexes = self._approvals.get(approval_id)
        return indexes[0] if indexes else None

    def data(self, kind: str, data_id: str) -> int | None:
        return self._data.get((kind, data_id))

    def pend(self, index: int, pending: Pending) -> None:
        """The part at `index` is behind `pending` until it is settled or dropped."""
        self._pending[index] = pending

    def pending(self, index: int) -> Pending | None:
        return self._pending.get(index)

    def drop(self, index: int) -> None:
        """What was pending is about to be overwritten."""
        self._pending.pop(index, None)

    def settle(self, index: int) -> Part:
        """The part as it is now."""
        if pending := self._pending.pop(index, None):
            self.items[index] = pending.render(self.items[index], javascript=self._javascript)
        return self.items[index]

    def settle_all(self) -> list[Part]:
        for index, pending in self._pending.items():
            self.items[index] = pending.render(self.items[index], javascript=self._javascript)
        self._pending.clear()
        return self.items

    def step(self) -> list[Part]:
        """The parts of the current step."""
        return self.items[self._step_begin :]

    def reset_step(self) -> bool:
        """Throw away the parts of the current step; false when there were none."""
        begin = self._step_begin
        gone = self.items[begin:]
        for index, part in enumerate(gone, begin):
            self._pending.pop(index, None)
            if is_tool(part):
                self._forget(self._calls, part["toolCallId"], index)
                self._leave_approval(part, index)
            elif isinstance(part.get("id"), str) and self._data.get((part["type"], part["id"])) == index:
                del self._data[part["type"], part["id"]]
        del self.items[begin:]
        self._static, self._dynamic = {}, {}
        return bool(gone)

    def _enter_approval(self, part: Part, index: int) -> None:
        approval = part.get("approval")
        if isinstance(approval, dict) and isinstance(approval.get("id"), str):
            insort(self._approvals.setdefault(approval["id"], []), index)

    def _leave_approval(self, part: Part, index: int) -> None:
        approval = part.get("approval")
        if isinstance(approval, dict) and isinstance(approval.get("id"), str):
            self._forget(self._approvals, approval["id"], index)

    @staticmethod
    def _forget(indexes: dict[str, list[int]], key: str, index: int) -> None:
        rest = [each for each in indexes[key] if each != index]
        if rest:
            indexes[key] = rest
        else:
            del indexes[key]
