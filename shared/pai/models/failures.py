"""Errors of pydantic-ai, of provider SDKs and of the network, mapped to ModelError in one place."""

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from pydantic_ai import exceptions

from pai.models.errors import ModelError, ModelErrorCode

_log = logging.getLogger("pai.models")

_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|rk|key|xai|gsk)-[\w\-*.]{4,}|\bAIza[\w\-]{10,}|\bbearer\s+\S+|(?<=[?&]key=)[^&\s]+"
)
_LONGEST_DETAIL = 300


@contextmanager
def mapped_errors(provider: str, model: str) -> Generator[None]:
    """Raise ModelError instead of anything that the call of a provider raises."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        mapped = model_error(error, provider=provider, model=model)
        _log.warning("%s:%s failed with %s: %s", provider, model, mapped.code, redacted(str(error)))
        raise mapped from error


def model_error(error: Exception, *, provider: str, model: str) -> ModelError:
    """The ModelError that says the same for people. What is not understood is taken for a garbled answer: retryable."""
    retry_after = _retry_after(error)
    match error:
        case exceptions.ModelContextWindowExceededError():
            return ModelError(
                f"The conversation is longer than {model} can read.", code=ModelErrorCode.context_overflow
            )
        case exceptions.ModelAuthenticationError():
            return ModelError(
                f"{provider} refused the API key. Check the key and that it may use {model}.", code=ModelErrorCode.auth
            )
        case exceptions.ModelQuotaExceededError():
            return ModelError(
                f"The quota or credit of the {provider} account is used up.", code=ModelErrorCode.rate_limited
            )
        case exceptions.ModelRateLimitError():
            return ModelError(
                f"{provider} limits the rate of requests.",
                code=ModelErrorCode.rate_limited,
                retryable=True,
                retry_after=retry_after,
            )
        case exceptions.ModelUnavailableError():
            return ModelError(
                f"{provider} is overloaded or unavailable.",
                code=ModelErrorCode.overloaded,
                retryable=True,
                retry_after=retry_after,
            )
        case exceptions.ModelRequestTimeout() | exceptions.ModelTimeoutError():
            return ModelError(f"{provider} did not answer in time.", code=ModelErrorCode.timeout, retryable=True)
        case exceptions.ModelNotFoundError():
            return ModelError(f'{provider} does not know the model "{model}", or the base URL is wrong.')
        case exceptions.ModelRequestRejectedError():
            return ModelError(f"{provider} rejected the request: {_detail(error)}")
        case exceptions.ModelConnectionError():
            return ModelError(f"The connection to {provider} failed or broke off.", retryable=True)
        case exceptions.ModelHTTPError():
            return _status(error, provider, retry_after)
        case exceptions.UserError() | NotImplementedError():
            return ModelError(f"The request cannot be sent to {provider}: {redacted(str(error))}")
        case _:
            return ModelError(f"{provider} broke off or sent an answer that cannot be read.", retryable=True)


def missing_key(provider: str, variable: str) -> ModelError:
    return ModelError(
        f'No API key for the model provider "{provider}": set the environment variable {variable}.',
        code=ModelErrorCode.auth,
    )


def cut_off(provider: str) -> ModelError:
    """The stream ended without the provider saying that it is the end."""
    return ModelError(f"The answer of {provider} broke off.", retryable=True)


def redacted(text: str) -> str:
    """The beginning of a text that may quote a key, without it."""
    text = _SECRETS.sub("***", " ".join(text.split()))
    return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "..."


def _status(error: exceptions.ModelHTTPError, provider: str, retry_after: timedelta | None) -> ModelError:
    status = error.status_code
    if status == 429:
        code = ModelErrorCode.rate_limited
    elif status in (503, 529):
        code = ModelErrorCode.overloaded
    else:
        code = ModelErrorCode.provider_error
    retryable = status in (408, 409, 425, 429) or status >= 500
    return ModelError(
        f"{provider} answered with an error ({status}): {_detail(error)}",
        code=code,
        retryable=retryable,
        retry_after=retry_after,
    )


def _retry_after(error: Exception) -> timedelta | None:
    seconds = getattr(error, "retry_after", None)
    return timedelta(seconds=seconds) if isinstance(seconds, int | float) and 0 <= seconds < 86_400 else None


def _detail(error: exceptions.ModelAPIError) -> str:
    """The provider's own sentence, when its error body has one."""
    body = error.body
    for _ in range(2):
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, dict):
            inner = body.get("error")
            if isinstance(inner, dict):
                body = inner
            elif isinstance(body.get("message"), str):
                return redacted(body["message"])
    return redacted(error.message)
