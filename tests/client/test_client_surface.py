"""What the package offers, and what importing it costs."""

import subprocess
import sys

import pai.client
from pai.client import add_usage, empty_usage, has_usage

HEAVY = ("fastapi", "celery", "sqlalchemy", "sqlmodel", "redis", "starlette", "pydantic_ai", "openai", "anthropic")


def test_importing_the_client_imports_no_server_and_no_provider() -> None:
    code = f"import sys, pai.client; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_public_is_listed() -> None:
    public = {name for name, value in vars(pai.client).items() if not name.startswith("_")}
    modules = {name for name in public if type(getattr(pai.client, name)).__name__ == "module"}
    assert sorted(public - modules) == sorted(pai.client.__all__)


def test_usage_is_added_count_by_count() -> None:
    usage = empty_usage().model_copy(update={"input_tokens": 2})
    assert not has_usage(empty_usage())
    assert add_usage(usage, usage).input_tokens == 4
    assert add_usage(usage, usage).output_tokens is None
