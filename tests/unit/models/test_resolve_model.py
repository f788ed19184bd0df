"""From a declaration to something that can be called, or to a sentence that says what to do."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from pai.models import DemoModel, ModelError, ModelErrorCode, ScriptedModel, resolve_model


def test_importing_the_models_imports_no_provider_library() -> None:
    code = (
        "import sys, pai.models; pai.models.resolve_model('demo'); "
        "print(sorted({'pydantic_ai', 'openai', 'anthropic', 'google.genai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_demo_needs_nothing() -> None:
    assert isinstance(resolve_model("demo", environment={}), DemoModel)


def test_a_model_is_taken_as_it_is() -> None:
    model = ScriptedModel([])
    assert resolve_model(model) is model


def test_a_model_of_the_library_below_is_wrapped() -> None:
    from pydantic_ai.models.test import TestModel

    model = resolve_model(TestModel())
    assert (model.provider, model.name) == ("test", "test")


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("openai:gpt-6-luna", "OPENAI_API_KEY"),
        ("openai-chat:gpt-6-luna", "OPENAI_API_KEY"),
        ("anthropic:claude-haiku-5-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-3.8-flash", "GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_says_which_variable_to_set(spec: str, variable: str) -> None:
    with pytest.raises(ModelError, match=variable) as caught:
        resolve_model(spec, environment={})
    assert (caught.value.code, caught.value.retryable) == (ModelErrorCode.auth, False)


@pytest.mark.parametrize(
    ("spec", "environment", "address"),
    [
        ("openai-chat:m", {"PAI_OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "http://127.0.0.1:1/v1"),
        ("openai:m", {"OPENAI_BASE_URL": "http://127.0.0.1:2/v1", "OPENAI_API_KEY": "k"}, "http://127.0.0.1:2/v1"),
        ("anthropic:m", {"PAI_ANTHROPIC_BASE_URL": "http://127.0.0.1:3"}, "http://127.0.0.1:3"),
        ("google:m", {"PAI_GOOGLE_BASE_URL": "http://127.0.0.1:4", "GEMINI_API_KEY": "k"}, "http://127.0.0.1:4"),
    ],
)
async def test_the_environment_says_where_a_provider_is(
    spec: str, environment: Mapping[str, str], address: str
) -> None:
    from pai.models.adapter import PydanticAIModel

    model = resolve_model(spec, environment=environment)
    assert isinstance(model, PydanticAIModel)
    assert str(model._called.base_url).rstrip("/") == address
    await model.aclose()


@pytest.mark.parametrize("spec", ["", "gpt-6", ":x", "openai:", "nobody:knows"])
def test_what_is_no_model_is_refused_with_a_reason(spec: str) -> None:
    with pytest.raises(ModelError, match='The model "'):
        resolve_model(spec, environment={})
