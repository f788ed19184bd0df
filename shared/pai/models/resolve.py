"""From what an agent declares as its model to something that can be called; provider libraries load lazily, here."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from pai.models.demo import DemoModel
from pai.models.errors import ModelError, ModelErrorCode
from pai.models.model import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a provider is reached.

    Without `base_url` the variable `PAI_{PROVIDER}_BASE_URL` (OPENAI, ANTHROPIC, GOOGLE) counts, then the provider's
    own; without `api_key` the provider's usual variable. `first_event_timeout` is how long a call may be silent before
    its first output, `read_timeout` how long between two pieces of output, `request_timeout` how long it may take
    altogether.
    """

    base_url: str | None = None
    api_key: str | None = None
    first_event_timeout: timedelta = timedelta(minutes=3)
    read_timeout: timedelta = timedelta(minutes=2)
    request_timeout: timedelta = timedelta(minutes=30)


def resolve_model(
    spec: "str | Model | PydanticModel",
    *,
    options: ModelOptions | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Model:
    """The model for `"demo"`, a `provider:name` string, a pydantic-ai model, or a Model (returned as it is).

    Providers: `openai` (Responses), `openai-chat` (Chat Completions, also of compatible servers), `anthropic`,
    `google`, and any other that pydantic-ai knows and whose extra is installed. The result belongs to one event loop;
    `aclose` it where it has one. Raises ModelError with code `auth` when no key is set and `provider_error` for an
    unknown provider or a missing extra; the message says what to do.
    """
    if spec == "demo":
        return DemoModel()
    chosen = options or ModelOptions()
    chosen = ModelOptions(
        base_url=base_url or chosen.base_url,
        api_key=api_key or chosen.api_key,
        first_event_timeout=chosen.first_event_timeout,
        read_timeout=chosen.read_timeout,
        request_timeout=chosen.request_timeout,
    )
    if isinstance(spec, str):
        provider, colon, name = spec.partition(":")
        if not (provider and colon and name):
            raise ModelError(f'The model "{spec}" is neither "demo" nor of the form "provider:name".')
        return _connected(provider, name, chosen, os.environ if environment is None else environment)
    if hasattr(spec, "request_stream"):
        return _wrapped(cast("PydanticModel", spec), chosen)
    if isinstance(spec, Model):
        return spec
    raise ModelError(f"A {type(spec).__name__} is no model.")


def _connected(provider: str, name: str, options: ModelOptions, environment: Mapping[str, str]) -> Model:
    try:
        from pai.models.providers import connect
    except ImportError as error:
        raise _missing(provider, error) from error
    try:
        return connect(provider, name, options=options, environment=environment)
    except ImportError as error:
        raise _missing(provider, error) from error


def _wrapped(model: Any, options: ModelOptions) -> Model:
    from pai.models.adapter import PydanticAIModel

    return PydanticAIModel(model, options=options)


def _missing(provider: str, error: ImportError) -> ModelError:
    return ModelError(
        f'The library for the model provider "{provider}" is not installed ({error.name or error}). '
        "Install pai-backend[all], and for a provider that is not among those of PAI, its extra of pydantic-ai-slim.",
        code=ModelErrorCode.provider_error,
    )
