"""One error for everything that can go wrong with a model call: retries are decided without knowing the provider.

Codes are those of run errors: the run that fails shows `code` and `message` as they are.
"""

from datetime import timedelta
from enum import StrEnum

from pai.protocol.errors import PaiError


class ModelErrorCode(StrEnum):
    rate_limited = "rate_limited"
    overloaded = "overloaded"
    context_overflow = "context_overflow"
    auth = "auth"
    timeout = "timeout"
    provider_error = "provider_error"


class ModelError(PaiError):
    """A model call failed.

    `message` is written for people and holds no key, header or request body. `retryable` says whether the same
    request may succeed later; `retry_after` is how long the provider asked to wait, when it did. Rate limits and
    overload should spend a deadline rather than a number of tries: see `waits`.
    """

    # Other errors have one code per class; this one carries the provider's verdict.
    code: str  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
    status = 502
    title = "The model call failed"

    def __init__(
        self,
        message: str,
        *,
        code: ModelErrorCode | str = ModelErrorCode.provider_error,
        retryable: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = ModelErrorCode(code)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.retryable = retryable
        self.retry_after = retry_after

    @property
    def waits(self) -> bool:
        """Whether the provider only asked for patience: such a failure says nothing about the request."""
        return self.retryable and self.code in (ModelErrorCode.rate_limited, ModelErrorCode.overloaded)
