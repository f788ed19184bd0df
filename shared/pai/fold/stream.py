"""A whole stream folded at once: for tests, tools and whoever has all chunks already."""

import json
from collections.abc import Iterable
from typing import Any

from pai.fold.errors import FoldError
from pai.fold.folding import Fold, Message
from pai.fold.partial_json import ABSENT, parse_strict
from pai.protocol.chunks import ChunkInvalid, validate_chunk
from pai.protocol.sse import SseDecoder

Errors = list[dict[str, Any]]


class _Reader:
    """Folds until the first error that is thrown; keeps what was last shown for it."""

    def __init__(self, message: Message | None) -> None:
        self.fold = Fold(message, javascript=True)
        self.errors: Errors = []
        self.ended = False
        self._shown_parts: int | None = None

    def apply(self, chunk: Any) -> None:
        if isinstance(chunk, dict) and chunk.get("type") == "error":
            self.errors.append({"name": "Error", "message": chunk.get("errorText")})
        try:
            if self.fold.apply(chunk):
                self._shown_parts = self.fold.part_count
        except FoldError as error:
            self.end(error.wire())

    def end(self, error: dict[str, Any]) -> None:
        self.errors.append(error)
        self.ended = True

    def message(self) -> Message | None:
        message = self.fold.message
        if not self.ended:
            return message
        # Since the last time the message was shown, only step-starts can have come.
        return None if self._shown_parts is None else {**message, "parts": message["parts"][: self._shown_parts]}


def fold(chunks: Iterable[Any], message: Message | None = None) -> tuple[Message | None, Errors]:
    """The message that the chunks make, and the errors: plain JSON in and out, nothing given is changed.

    `message` is the one to continue. `error` chunks are listed as `{name: "Error", message}` and stop nothing. A chunk
    that does not fit is listed as `{name, chunkType?, chunkId?, message}` and ends the fold: the message is then the
    one that a reader was shown last, None if it was shown none. The chunks are not validated: unknown types are
    ignored. Texts are JavaScript's: lone surrogates stay.
    """
    reader = _Reader(message)
    for chunk in chunks:
        reader.apply(chunk)
        if reader.ended:
            break
    return reader.message(), reader.errors


def fold_sse(body: Iterable[bytes], message: Message | None = None) -> tuple[Message | None, Errors]:
    """As `fold`, from the body of a server-sent event stream in any cut, with every chunk validated.

    The first event that is not JSON, or no chunk, ends the fold. `[DONE]` is skipped.
    """
    reader = _Reader(message)
    decoder = SseDecoder()
    for piece in body:
        for event in decoder.feed(piece):
            if event.data != "[DONE]":
                _read(reader, event.data)
            if reader.ended:
                return reader.message(), reader.errors
    return reader.message(), reader.errors


def _read(reader: _Reader, data: str) -> None:
    value = parse_strict(data)
    if value is ABSENT:
        reader.end({"name": "AI_JSONParseError", "message": f"JSON parsing failed: Text: {data}."})
        return
    try:
        chunk = validate_chunk(value)
    except ChunkInvalid:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        reader.end({"name": "AI_TypeValidationError", "message": f"Type validation failed: Value: {text}."})
    else:
        reader.apply(chunk)
