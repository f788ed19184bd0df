"""The messages of a thread in their canonical order, each folded by its own long-lived fold.

A chunk costs what the fold costs. A look costs what changed since the last one: views of other messages are shared.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage
from pai.fold.errors import FoldError
from pai.fold.folding import Fold
from pai.fold.projection import Projection
from pai.protocol.state import FoldingState, Message


class _Entry:
    """`fold` once a chunk came; until then `stored` and `folding` say where it would begin."""

    __slots__ = ("fold", "folding", "stored", "view")

    def __init__(self, stored: Message, folding: FoldingState | None, view: PaiCanonicalMessage | None = None) -> None:
        self.stored = stored
        self.folding = folding
        self.fold: Fold | None = None
        self.view = view

    @property
    def message(self) -> Message:
        return self.stored if self.fold is None else self.fold.message


class Transcript:
    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._entries: dict[str, _Entry] = {}
        self._changed: set[str] = set()
        self._moved = False
        self._places: dict[str, int] = {}
        self._views: list[PaiCanonicalMessage] = []
        self._shown: tuple[PaiCanonicalMessage, ...] = ()
        self._projection = Projection()

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._entries

    def apply(self, message_id: str, chunk: dict[str, Any]) -> None:
        """Raises FoldError for a chunk that does not fit; the message is as it was."""
        entry = self._entries.get(message_id)
        if entry is None:
            raise FoldError(f"There is no message {message_id!r} to apply a chunk to.")
        if entry.fold is None:
            if entry.stored["role"] != "assistant":
                raise FoldError(f"The message {message_id!r} is not one that grows.")
            entry.fold = Fold(entry.stored, entry.folding)
        if chunk["type"] == "start" and chunk.get("messageId", message_id) != message_id:
            raise FoldError(f"A chunk of {message_id!r} begins the message {chunk['messageId']!r}.")
        entry.fold.apply(chunk)
        self._changed.add(message_id)

    def check(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Raises FoldError when one of the records brings facts for a message that is not there."""
        for record in records:
            if "parts" not in record and record["id"] not in self._entries:
                raise FoldError(f"There is no message {record['id']!r} to put facts on.")

    def put(self, record: Mapping[str, Any]) -> None:
        """A whole message is appended, or replaces the one with its id; one without parts brings facts only."""
        message_id: str = record["id"]
        known = self._entries.get(message_id)
        self._moved = self._moved or known is None
        if "parts" in record:
            stored = {key: value for key, value in record.items() if key != "folding"}
            self._entries[message_id] = _replaced(known, stored, record.get("folding"))
        else:
            if known is None:
                raise FoldError(f"There is no message {message_id!r} to put facts on.")
            folding = known.folding if known.fold is None else known.fold.folding()
            stored = {**known.message, "metadata": record["metadata"]}
            self._entries[message_id] = _Entry(stored, folding, known.view)
        self._changed.add(message_id)

    def remove(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            if self._entries.pop(message_id, None) is not None:
                self._moved = True

    def replace(self, messages: Iterable[Message], folding: Mapping[str, FoldingState]) -> None:
        """All messages of a snapshot. Those that say the same as before keep their views."""
        known = self._entries
        self._entries = {
            message["id"]: _replaced(known.get(message["id"]), message, folding.get(message["id"]))
            for message in messages
        }
        self._changed.update(self._entries)
        self._moved = True

    def says(self, messages: Iterable[Message]) -> bool:
        """Whether these are the messages held, in this order, with this content."""
        held = [entry.message for entry in self._entries.values()]
        return held == list(messages)

    def view(self, message_id: str) -> PaiCanonicalMessage | None:
        """One message as consumers see it; None when it is not there."""
        if message_id not in self._entries:
            return None
        views = self.views()
        return views[self._places[message_id]]

    def views(self) -> tuple[PaiCanonicalMessage, ...]:
        """The messages as consumers see them. The same object while nothing changed."""
        if not self._changed and not self._moved:
            return self._shown
        for message_id in self._changed:
            entry = self._entries.get(message_id)
            if entry is not None:
                entry.view = self._view(entry)
                if not self._moved:
                    self._views[self._places[message_id]] = entry.view
        if self._moved:
            self._views = [cast(PaiCanonicalMessage, entry.view) for entry in self._entries.values()]
            self._places = {message_id: place for place, message_id in enumerate(self._entries)}
        self._changed.clear()
        self._moved = False
        self._shown = tuple(self._views)
        return self._shown

    def _view(self, entry: _Entry) -> PaiCanonicalMessage:
        message = self._projection.project(entry.message)
        if entry.view is not None and entry.view.raw is message:
            return entry.view
        return PaiCanonicalMessage(message, self._binding, entry.view)


def _replaced(known: _Entry | None, stored: Message, folding: FoldingState | None) -> _Entry:
    """Keeps the old objects of whatever is equal, so that views can be shared."""
    if known is None:
        return _Entry(stored, folding)
    old = known.message
    if old == stored:
        return _Entry(old, folding, known.view)
    old_parts, parts = old["parts"], stored["parts"]
    shared = [
        old_parts[index] if index < len(old_parts) and old_parts[index] == part else part
        for index, part in enumerate(parts)
    ]
    return _Entry({**stored, "parts": shared}, folding, known.view)
