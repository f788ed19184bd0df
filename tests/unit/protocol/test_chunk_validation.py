"""Chunks from outside: what passes, what is refused, and where the error is."""

import json
from pathlib import Path
from typing import Any

import pytest

from pai.protocol.chunks import ChunkInvalid, validate_chunk
from pai.protocol.errors import PaiError

VECTORS = Path(__file__).parents[2] / "vectors" / "vectors.jsonl"
FOLDED = [
    chunk
    for line in VECTORS.read_text().splitlines()
    if (vector := json.loads(line))["mode"] == "fold"
    for chunk in vector["chunks"]
]
MINIMAL: dict[str, dict[str, Any]] = {
    "start": {},
    "finish": {},
    "abort": {},
    "error": {"errorText": ""},
    "message-metadata": {"messageMetadata": None},
    "start-step": {},
    "finish-step": {},
    "reset-step": {},
    "text-start": {"id": ""},
    "text-delta": {"id": "t", "delta": ""},
    "text-end": {"id": "t"},
    "reasoning-start": {"id": "r"},
    "reasoning-delta": {"id": "r", "delta": "x"},
    "reasoning-end": {"id": "r"},
    "file": {"url": "u", "mediaType": "m"},
    "reasoning-file": {"url": "u", "mediaType": "m"},
    "source-url": {"sourceId": "s", "url": "u"},
    "source-document": {"sourceId": "s", "mediaType": "m", "title": "t"},
    "custom": {"kind": "k"},
    "steering-message": {"id": "s", "parts": []},
    "data-": {"data": None},
    "data-chart": {"data": {"x": [1]}},
    "tool-input-start": {"toolCallId": "c", "toolName": "t"},
    "tool-input-delta": {"toolCallId": "c", "inputTextDelta": ""},
    "tool-input-available": {"toolCallId": "c", "toolName": "t", "input": None},
    "tool-input-error": {"toolCallId": "c", "toolName": "t", "input": None, "errorText": "e"},
    "tool-approval-request": {"toolCallId": "c", "approvalId": "a"},
    "tool-approval-response": {"approvalId": "a", "approved": False},
    "tool-output-available": {"toolCallId": "c", "output": None},
    "tool-output-error": {"toolCallId": "c", "errorText": "e"},
    "tool-output-denied": {"toolCallId": "c"},
}
CASES = [({"type": kind, **keys}) for kind, keys in MINIMAL.items()]
OPTIONAL = {
    "start": ["messageId"],
    "finish": ["finishReason"],
    "abort": ["reason"],
    "text-end": ["providerMetadata", "citations"],
    "source-document": ["filename", "providerMetadata"],
    "data-x": ["id", "transient"],
    "tool-input-start": ["dynamic", "providerExecuted", "title", "inputEncoding", "providerMetadata", "toolMetadata"],
    "tool-approval-request": ["reason", "isAutomatic", "signature"],
    "tool-output-available": ["dynamic", "providerExecuted", "preliminary", "providerMetadata", "toolMetadata"],
}


@pytest.mark.parametrize("chunk", CASES, ids=lambda chunk: chunk["type"])
def test_what_is_required_is_enough_and_unknown_keys_are_kept(chunk: dict[str, Any]) -> None:
    more = {**chunk, "unknown": [None]}

    assert validate_chunk(chunk) == chunk
    assert validate_chunk(more) == more


@pytest.mark.parametrize(
    ("chunk", "key"),
    [(chunk, key) for chunk in CASES for key in chunk if key != "type"],
    ids=lambda value: value if isinstance(value, str) else value["type"],
)
def test_a_required_key_that_is_missing_is_named(chunk: dict[str, Any], key: str) -> None:
    with pytest.raises(ChunkInvalid) as caught:
        validate_chunk({name: value for name, value in chunk.items() if name != key})
    assert caught.value.path == key


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, keys in OPTIONAL.items() for key in keys], ids=lambda value: value
)
def test_an_optional_key_is_never_null(kind: str, key: str) -> None:
    chunk = {"type": kind, **MINIMAL.get(kind, {"data": 1}), key: None}

    with pytest.raises(ChunkInvalid) as caught:
        validate_chunk(chunk)
    assert caught.value.path == key


@pytest.mark.parametrize("key", ["messageMetadata", "approvalDescriptor", "inputSchemaInput"])
def test_an_optional_key_of_any_type_may_be_null(key: str) -> None:
    kind = "start" if key == "messageMetadata" else "tool-approval-request"
    chunk = {"type": kind, **MINIMAL[kind], key: None}

    assert validate_chunk(chunk) == chunk


@pytest.mark.parametrize(
    ("chunk", "path"),
    [
        ({"type": "text-start", "id": 1}, "id"),
        ({"type": "text-start", "id": "t", "providerMetadata": {"p": 1}}, "providerMetadata.p"),
        ({"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "dynamic": "yes"}, "dynamic"),
        ({"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "dynamic": 1}, "dynamic"),
        ({"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "inputEncoding": "hex"}, "inputEncoding"),
        ({"type": "tool-input-start", "toolCallId": "c", "toolName": "t", "toolMetadata": [1]}, "toolMetadata"),
        ({"type": "finish", "finishReason": "unknown"}, "finishReason"),
        ({"type": "steering-message", "id": "s", "parts": [{"type": "image"}]}, "parts.0"),
        ({"type": "brand-new"}, "type"),
        ({"type": "data"}, "type"),
        ({"type": 5}, "type"),
        ({"type": None}, "type"),
        ({}, "type"),
        ([1], ""),
        ("text-start", ""),
        (None, ""),
    ],
    ids=repr,
)
def test_what_is_wrong_is_a_typed_error_with_its_place(chunk: Any, path: str) -> None:
    with pytest.raises(ChunkInvalid) as caught:
        validate_chunk(chunk)
    assert caught.value.path == path
    assert caught.value.message
    assert isinstance(caught.value, PaiError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "tool-calls", "error", "other", "interrupted"])
def test_these_finish_reasons_are_known(reason: str) -> None:
    assert validate_chunk({"type": "finish", "finishReason": reason})


URL = {"type": "source", "sourceType": "url", "id": "s", "url": "u"}
DOCUMENT = {"type": "source", "sourceType": "document", "id": "s", "mediaType": "m", "title": "t"}


@pytest.mark.parametrize("source", [URL, DOCUMENT])
def test_unknown_keys_inside_citations_are_dropped_and_nowhere_else(source: dict[str, Any]) -> None:
    given = {"source": {**source, "x": 1}, "startIndex": 0, "endIndex": 3.0, "citedText": "abc", "y": 2}
    chunk = validate_chunk({"type": "text-end", "id": "t", "citations": [given], "z": 3})

    assert chunk == {
        "type": "text-end",
        "id": "t",
        "z": 3,
        "citations": [{"source": source, "startIndex": 0, "endIndex": 3, "citedText": "abc"}],
    }


@pytest.mark.parametrize(
    "citation",
    [
        {},
        {"source": {key: value for key, value in URL.items() if key != "url"}},
        {"source": {**DOCUMENT, "title": None}},
        {"source": {**URL, "sourceType": "book"}},
        {"source": URL, "startIndex": -1},
        {"source": URL, "startIndex": 1.5},
        {"source": URL, "endIndex": "1"},
        {"source": URL, "endIndex": float("inf")},
    ],
    ids=repr,
)
def test_a_citation_has_its_source_and_whole_indexes(citation: Any) -> None:
    with pytest.raises(ChunkInvalid, match="citations"):
        validate_chunk({"type": "text-end", "id": "t", "citations": [citation]})


def test_every_chunk_of_the_fold_vectors_is_valid_and_reads_as_it_is() -> None:
    assert len(FOLDED) > 1000
    for chunk in FOLDED:
        assert validate_chunk(chunk) == chunk
