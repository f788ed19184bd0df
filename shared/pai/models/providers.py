"""Where provider libraries are imported: one function that connects to a provider by name."""

from collections.abc import Mapping

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from pai.models.adapter import PydanticAIModel
from pai.models.errors import ModelError
from pai.models.failures import missing_key, redacted
from pai.models.http_responses import http_client
from pai.models.resolve import ModelOptions

_NO_KEY = "none"
"""Sent to compatible servers that ask for no key; their client wants one."""


def connect(provider: str, name: str, *, options: ModelOptions, environment: Mapping[str, str]) -> PydanticAIModel:
    """The named model of a provider. Raises ModelError, and ImportError when the provider's library is missing."""
    match provider:
        case "openai" | "openai-chat":
            return _openai(provider, name, options, environment)
        case "anthropic":
            return _anthropic(name, options, environment)
        case "google":
            return _google(name, options, environment)
        case _:
            return _other(provider, name, options)


def _openai(provider: str, name: str, options: ModelOptions, environment: Mapping[str, str]) -> PydanticAIModel:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    base_url = options.base_url or _first(environment, "PAI_OPENAI_BASE_URL", "OPENAI_BASE_URL")
    key = options.api_key or environment.get("OPENAI_API_KEY") or (_NO_KEY if base_url else None)
    if not key:
        raise missing_key(provider, "OPENAI_API_KEY")
    client = http_client(read_timeout=options.read_timeout)
    connected = OpenAIProvider(base_url=base_url, api_key=key, http_client=client)
    kind = OpenAIResponsesModel if provider == "openai" else OpenAIChatModel
    return PydanticAIModel(kind(name, provider=connected), options=options, label=provider, close=client.aclose)


def _anthropic(name: str, options: ModelOptions, environment: Mapping[str, str]) -> PydanticAIModel:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    base_url = options.base_url or _first(environment, "PAI_ANTHROPIC_BASE_URL", "ANTHROPIC_BASE_URL")
    key = options.api_key or environment.get("ANTHROPIC_API_KEY") or (_NO_KEY if base_url else None)
    if not key:
        raise missing_key("anthropic", "ANTHROPIC_API_KEY")
    client = http_client(read_timeout=options.read_timeout)
    connected = AnthropicProvider(api_key=key, base_url=base_url, http_client=client)
    return PydanticAIModel(
        AnthropicModel(name, provider=connected), options=options, label="anthropic", close=client.aclose
    )


def _google(name: str, options: ModelOptions, environment: Mapping[str, str]) -> PydanticAIModel:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    base_url = options.base_url or _first(environment, "PAI_GOOGLE_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
    key = options.api_key or _first(environment, "GOOGLE_API_KEY", "GEMINI_API_KEY") or (_NO_KEY if base_url else None)
    if not key:
        raise missing_key("google", "GOOGLE_API_KEY")
    client = http_client(read_timeout=options.read_timeout)
    connected = GoogleProvider(api_key=key, base_url=base_url, http_client=client)
    return PydanticAIModel(GoogleModel(name, provider=connected), options=options, label="google", close=client.aclose)


def _other(provider: str, name: str, options: ModelOptions) -> PydanticAIModel:
    """Any other provider of pydantic-ai, with the keys that it reads itself."""
    try:
        return PydanticAIModel(infer_model(f"{provider}:{name}"), options=options)
    except (UserError, ValueError) as error:
        raise ModelError(f'The model "{provider}:{name}" cannot be used: {redacted(str(error))}') from error


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)
