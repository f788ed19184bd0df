"""What a fake provider says, whatever its wire format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Thinking:
    """`signature` is the provider's seal; Chat Completions has none."""

    deltas: Sequence[str]
    signature: str = "c2lnbmF0dXJl"
    id: str = "rs_1"


@dataclass(frozen=True)
class Text:
    deltas: Sequence[str]
    citations: Sequence[tuple[str, str]] = ()
    """(url, title) pairs that the whole text cites."""
    id: str = "msg_1"


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str
    """JSON as the model wrote it; Gemini sends it parsed."""
    pieces: int = 3


@dataclass(frozen=True)
class Search:
    """A web search that the provider runs itself, with (url, title) pairs as its result; None while it has none."""

    query: str
    results: Sequence[tuple[str, str]] | None
    id: str = "srvtoolu_1"


@dataclass(frozen=True)
class Found:
    """The result of a search of an earlier response, which paused."""

    results: Sequence[tuple[str, str]]
    id: str = "srvtoolu_1"


Item = Thinking | Text | Call | Search | Found


@dataclass(frozen=True)
class Usage:
    input: int = 20
    output: int = 10
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model says. `finish`: stop, length, pause, filter, or None for a stream without an end."""

    items: Sequence[Item] = ()
    usage: Usage | None = field(default_factory=Usage)
    finish: str | None = "stop"
    model: str = "fake-model"
    usage_twice: bool = False


def pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
