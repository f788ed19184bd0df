"""Model messages equal those that the real npm package made of the same messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from pai.models.convert import convert_to_model_messages

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors" / "convert_vectors.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_model_messages_are_those_of_the_npm_package(vector: dict[str, Any]) -> None:
    ignore = vector["options"].get("ignoreIncompleteToolCalls", False)
    if "error" in vector["expected"]:
        with pytest.raises(ValueError, match=vector["expected"]["error"]["message"]):
            convert_to_model_messages(vector["messages"], ignore_incomplete_tool_calls=ignore)
        return
    made = convert_to_model_messages(vector["messages"], ignore_incomplete_tool_calls=ignore)
    assert made == vector["expected"]["modelMessages"]
