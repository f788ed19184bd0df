"""The fold against vectors made by the npm package `ai` 7.0.173.

JavaScript-only are the few vectors in which a text holds half a surrogate pair: a JavaScript string can, UTF-8 cannot.
`fold` keeps such text as Python's lone surrogates and passes them too; a `Fold` that has to be stored and sent shows
U+FFFD in their place, and only there.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pai.fold import Fold, FoldError, fold, fold_sse, parse_partial_json

VECTORS = Path(__file__).parents[2] / "vectors"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


ALL = load("vectors.jsonl")
FOLDS = [vector for vector in ALL if vector["mode"] == "fold"]
WIRES = [vector for vector in ALL if vector["mode"] == "wire"]
TRACED = [vector for vector in FOLDS if "trace" in vector]

# The delta `a` + first half of an emoji, then the second half + `b`; and the escapes `\ud83d\ude00` cut in the middle.
JAVASCRIPT_ONLY = {"text/surrogate-pair-split-across-deltas", "partial/char-by-char-mixed"}


def named(vectors: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


def expected_message(vector: dict[str, Any]) -> Any:
    """The state; after an error that ended the reading there is none, and the last message shown is what stands."""
    expected = vector["expected"]
    return expected["final"] if expected["state"] is None else expected["state"]


def snapshots(vector: dict[str, Any], *, javascript: bool) -> list[dict[str, Any]]:
    reader = Fold(vector.get("message"), javascript=javascript)
    shown = []
    for chunk in vector["chunks"]:
        try:
            if reader.apply(chunk):
                shown.append(reader.message)
        except FoldError:
            break
    return shown


@named(FOLDS)
def test_the_fold_gives_the_message_and_the_errors_of_the_ai_sdk(vector: dict[str, Any]) -> None:
    before = json.dumps(vector)

    message, errors = fold(vector["chunks"], vector.get("message"))

    assert message == expected_message(vector)
    assert errors == vector["expected"]["errors"]
    assert json.dumps(vector) == before, "nothing that was given is changed"


@named(FOLDS)
def test_a_message_is_shown_as_often_as_the_ai_sdk_shows_it(vector: dict[str, Any]) -> None:
    assert len(snapshots(vector, javascript=True)) == vector["expected"]["snapshotCount"]


@named(TRACED)
def test_every_message_on_the_way_is_that_of_the_ai_sdk(vector: dict[str, Any]) -> None:
    assert snapshots(vector, javascript=True) == vector["expected"]["snapshots"]


@named(WIRES)
def test_a_body_is_read_as_the_ai_sdk_reads_it(vector: dict[str, Any]) -> None:
    pieces = vector.get("raw") or [f"data: {json.dumps(chunk)}\n\n" for chunk in vector["chunks"]]

    message, errors = fold_sse([piece.encode() for piece in pieces])

    assert message == expected_message(vector)
    assert errors == vector["expected"]["errors"]


@pytest.mark.parametrize("size", [1, 2, 7])
@named([vector for vector in WIRES if "raw" in vector])
def test_a_body_reads_the_same_in_any_cut(vector: dict[str, Any], size: int) -> None:
    body = "".join(vector["raw"]).encode()

    message, errors = fold_sse(body[start : start + size] for start in range(0, len(body), size))

    assert (message, errors) == (expected_message(vector), vector["expected"]["errors"])


def test_only_halves_of_surrogate_pairs_read_differently_in_a_fold_that_is_stored() -> None:
    differing = {
        vector["name"] for vector in FOLDS if snapshots(vector, javascript=False) != snapshots(vector, javascript=True)
    }

    assert differing == JAVASCRIPT_ONLY


@named(load("partial_json.jsonl"))
def test_partial_json_is_read_as_the_ai_sdk_reads_it(vector: dict[str, Any]) -> None:
    assert parse_partial_json(vector["text"]) == (vector.get("value"), vector["state"])
