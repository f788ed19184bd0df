"""What a provider does wrong becomes one kind of error, which says whether to try again and is fit for people."""

from datetime import timedelta
from typing import Any

import pytest

from pai.models import ModelError, ModelErrorCode
from pai.models.resolve import ModelOptions
from support.fake_providers import Reply, text_reply
from support.model_calls import chunks_of, request
from support.provider_answers import Answer, Text

KEY = "sk-test-do-not-tell-anybody"


async def failure(connect: Any, provider: str, reply: Reply, **options: Any) -> ModelError:
    async with connect(provider, reply, **options) as (fake, model):
        with pytest.raises(ModelError) as caught:
            await chunks_of(model)
    assert len(fake.requests) == 1, "the client must not retry on its own"
    assert KEY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (401, ModelErrorCode.auth, False),
        (403, ModelErrorCode.auth, False),
        (404, ModelErrorCode.provider_error, False),
        (429, ModelErrorCode.rate_limited, True),
        (500, ModelErrorCode.provider_error, True),
        (502, ModelErrorCode.provider_error, True),
        (503, ModelErrorCode.overloaded, True),
        (529, ModelErrorCode.overloaded, True),
    ],
)
async def test_a_status_says_whether_to_try_again(
    connect: Any, provider: str, status: int, code: ModelErrorCode, retryable: bool
) -> None:
    error = await failure(connect, provider, Reply(status=status, message=f"the key {KEY} is bad"))
    assert (error.code, error.retryable) == (code, retryable)


async def test_retry_after_is_honoured(connect: Any, provider: str) -> None:
    error = await failure(connect, provider, Reply(status=429, headers={"retry-after": "7"}))
    assert error.retry_after == timedelta(seconds=7)
    assert error.waits


async def test_a_conversation_that_is_too_long_is_an_overflow(connect: Any, provider: str) -> None:
    messages = {
        "openai": ("Your input exceeds the context window of this model.", "context_length_exceeded"),
        "openai-chat": ("This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
        "anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", None),
        "google": ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", None),
    }
    message, code = messages[provider]
    error = await failure(connect, provider, Reply(status=400, message=message, code=code))
    assert (error.code, error.retryable) == (ModelErrorCode.context_overflow, False)


async def test_a_rejected_request_tells_what_the_provider_said(connect: Any, provider: str) -> None:
    error = await failure(connect, provider, Reply(status=400, message=f"tools.0.name is wrong ({KEY})"))
    assert (error.code, error.retryable) == (ModelErrorCode.provider_error, False)
    assert "tools.0.name is wrong" in error.message


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_connection_that_breaks_is_worth_another_try(connect: Any, provider: str, after: int) -> None:
    reply = Reply(answer=Answer(items=[Text(["one ", "two ", "three ", "four "])]), cut_after=after)
    error = await failure(connect, provider, reply)
    assert (error.code, error.retryable) == (ModelErrorCode.provider_error, True)


async def test_a_stream_without_an_end_is_worth_another_try(connect: Any, provider: str) -> None:
    error = await failure(connect, provider, Reply(answer=Answer(items=[Text(["one ", "two"])], finish=None)))
    assert (error.code, error.retryable) == (ModelErrorCode.provider_error, True)


@pytest.mark.parametrize(
    "raw", [b"data: {nonsense\n\n", b"<html>Bad gateway</html>", b"", b'data: {"hello": "world"}\n\n', b"\xff\xfe\x00"]
)
async def test_garbage_is_worth_another_try(connect: Any, provider: str, raw: bytes) -> None:
    error = await failure(connect, provider, Reply(raw=raw))
    assert (error.code, error.retryable) == (ModelErrorCode.provider_error, True)


async def test_a_web_page_instead_of_a_stream_is_worth_another_try(connect: Any, provider: str) -> None:
    error = await failure(connect, provider, Reply(raw=b"<html>hi</html>", content_type="text/html"))
    assert (error.code, error.retryable) == (ModelErrorCode.provider_error, True)


async def test_a_provider_that_cannot_be_reached_is_worth_another_try(connect: Any, provider: str) -> None:
    async with connect(provider, text_reply("x")) as (_, model):
        pass
    async with connect(provider, text_reply("x")) as (fake, model):
        fake.stop()
        with pytest.raises(ModelError) as caught:
            await chunks_of(model)
    assert (caught.value.code, caught.value.retryable) == (ModelErrorCode.provider_error, True)


async def test_silence_before_the_first_output_is_a_timeout(connect: Any, provider: str) -> None:
    options = ModelOptions(first_event_timeout=timedelta(milliseconds=50))
    async with connect(provider, _never(), options=options) as (_, model):
        with pytest.raises(ModelError) as caught:
            await chunks_of(model)
    assert (caught.value.code, caught.value.retryable) == (ModelErrorCode.timeout, True)


async def test_a_call_that_takes_too_long_altogether_is_a_timeout(connect: Any, provider: str) -> None:
    options = ModelOptions(request_timeout=timedelta(milliseconds=300))
    async with connect(provider, _never(after=3), options=options) as (_, model):
        with pytest.raises(ModelError) as caught:
            await chunks_of(model)
    assert (caught.value.code, caught.value.retryable) == (ModelErrorCode.timeout, True)


async def test_usage_is_known_after_a_failure(connect: Any) -> None:
    reply = Reply(answer=Answer(items=[Text(["one ", "two ", "three "])]), cut_after=4)
    async with connect("anthropic", reply) as (_, model), model.stream(request()) as stream:
        with pytest.raises(ModelError):
            async for _ in stream:
                pass
        assert stream.usage.input_tokens == 20
        with pytest.raises(RuntimeError):
            _ = stream.result


def _never(after: int = 0) -> Reply:
    import asyncio

    return Reply(answer=Answer(items=[Text(["one ", "two "])]), gate=asyncio.Event(), gate_at=after)
