"""A fake provider and a model that is connected to it, for each of the four wire formats."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pai.models import resolve_model
from pai.models.adapter import PydanticAIModel
from support.fake_providers import PROVIDERS, FakeProvider, Reply, fake_provider

Connect = Callable[..., Any]
NAMES = {
    "openai": "gpt-6-luna",
    "openai-chat": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "google": "gemini-3.8-flash",
}
"""Names that the library below knows something about: with unknown names it leaves out what not all models can do."""
KEY = "sk-test-do-not-tell-anybody"


@asynccontextmanager
async def connected(
    provider: str, *replies: Reply, **options: Any
) -> AsyncIterator[tuple[FakeProvider, PydanticAIModel]]:
    async with fake_provider(*replies) as fake:
        model = resolve_model(f"{provider}:{NAMES[provider]}", base_url=fake.base_url(provider), api_key=KEY, **options)
        assert isinstance(model, PydanticAIModel)
        try:
            yield fake, model
        finally:
            await model.aclose()


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def connect() -> Connect:
    """`async with connect(provider, *replies) as (fake, model)`."""
    return connected
