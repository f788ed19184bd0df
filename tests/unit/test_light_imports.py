"""Who must not pay for what: importing a tier loads nothing that only another one needs."""

import subprocess
import sys

import pytest

SERVER = ("fastapi", "starlette", "uvicorn", "celery", "kombu", "sqlalchemy", "sqlmodel", "alembic", "redis")
PROVIDERS = ("pydantic_ai", "openai", "anthropic", "google.genai")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("pai", (*SERVER, *PROVIDERS)),
        ("pai.client", (*SERVER, *PROVIDERS)),
        ("pai.cli", (*SERVER, *PROVIDERS, "httpx")),
        ("pai.cli.chat", (*SERVER, *PROVIDERS)),
        ("pai.cli.dev", PROVIDERS),
        ("pai_api.app", (*PROVIDERS, "pai_workers", "boto3")),
        ("pai_workers.process", (*PROVIDERS, "boto3", "fastapi", "uvicorn", "pai_api")),
    ],
)
def test_importing_a_module_loads_only_what_it_needs(module: str, forbidden: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*(name for name in {forbidden!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert done.stdout.split() == []
