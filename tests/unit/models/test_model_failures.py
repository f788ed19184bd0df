"""Errors are for people, and hold no secrets."""

import pytest
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError

from pai.models.failures import model_error, redacted
from pai.protocol.errors import PaiError


@pytest.mark.parametrize(
    "secret",
    ["sk-proj-abcDEF123_-x", "AIzaSyA1234567890abcdefg", "Bearer abc.def.ghi", "sk-ant-api03-xyz", "xai-12345678"],
)
def test_keys_are_struck_out(secret: str) -> None:
    assert secret not in redacted(f"Incorrect API key provided: {secret}. See https://x.example?key={secret}")


def test_long_texts_are_cut() -> None:
    assert len(redacted("word " * 1000)) < 400


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (UnexpectedModelBehavior("garbage"), True),
        (ModelAPIError("m", "it broke"), True),
        (ValueError("not JSON"), True),
        (ConnectionResetError(), True),
        (UserError("no such tool"), False),
        (NotImplementedError("video"), False),
    ],
)
def test_what_cannot_be_the_requests_fault_is_tried_again(error: Exception, retryable: bool) -> None:
    mapped = model_error(error, provider="openai", model="m")
    assert mapped.retryable is retryable
    assert isinstance(mapped, PaiError)
    assert "openai" in mapped.message
