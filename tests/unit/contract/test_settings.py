"""Settings come from `PAI_*` variables, and wrong ones are refused with their name."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pai.settings import Settings


def test_without_variables_everything_is_local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PAI_HOME")
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert settings.home == tmp_path / ".pai"
    assert settings.database_url == f"sqlite:///{tmp_path}/.pai/pai.db"
    assert settings.agents == "pai.demo:registry"
    assert (settings.host, settings.port) == ("127.0.0.1", 8460)
    assert (settings.default_queue, settings.queues) == ("pai", ())


@pytest.mark.parametrize(
    ("variable", "text", "name", "expected"),
    [
        ("PAI_LEASE", "7.5", "lease", timedelta(seconds=7.5)),
        ("PAI_DRAIN_SECONDS", "3", "drain_seconds", timedelta(seconds=3)),
        ("PAI_KEEPALIVE", "PT1M", "keepalive", timedelta(minutes=1)),
        (
            "PAI_CORS_ORIGINS",
            "https://a.example, https://b.example",
            "cors_origins",
            ("https://a.example", "https://b.example"),
        ),
        ("PAI_CORS_ORIGINS", "", "cors_origins", ()),
        ("PAI_PORT", "0", "port", 0),
        ("PAI_HOME", "/srv/pai", "home", Path("/srv/pai")),
        ("PAI_ALLOW_ANONYMOUS", "true", "allow_anonymous", True),
        ("PAI_QUEUES", "fast,slow", "queues", ("fast", "slow")),
        ("PAI_REDIS_URL", "", "redis_url", None),
        ("OPENAI_BASE_URL", "http://localhost:1/v1", "openai_base_url", "http://localhost:1/v1"),
    ],
)
def test_a_variable_is_read(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, expected: Any
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(Settings(), name) == expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PAI_LEASE", "0"),
        ("PAI_LEASE", "soon"),
        ("PAI_LEASE", "-1"),
        ("PAI_LEASE", "nan"),
        ("PAI_LEASE", "inf"),
        ("PAI_LEASE", "4"),
        ("PAI_PORT", "70000"),
        ("PAI_PORT", "http"),
        ("PAI_MAX_BODY_BYTES", "0"),
        ("PAI_MAX_JSON_DEPTH", "1000"),
        ("PAI_LOG_LEVEL", "LOUD"),
    ],
)
def test_a_wrong_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValidationError):
        Settings()


def test_a_key_of_ones_own_wins_over_the_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "shared")
    monkeypatch.setenv("PAI_OPENAI_API_KEY", "own")
    key = Settings().openai_api_key
    assert key is not None
    assert key.get_secret_value() == "own"
    assert "own" not in repr(Settings())


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    table = Settings.table()
    assert all(description for _, _, description in table)
    assert ("PAI_LEASE", "10", "How long a step belongs to a worker without renewal.") in table
