"""What `paictl dev` says once everything is up."""

from pathlib import Path

import pytest

from pai.cli.dev import greeting
from pai.contract import Registry
from pai.settings import Settings

URL = "http://127.0.0.1:8460"


def said(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"agents_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(f"from pai import Agent, Registry\nregistry = Registry({source})\n")
    settings = Settings(agents=f"{name}:registry")
    return greeting(settings, Registry.load(settings.agents), URL)


def test_the_lines_for_other_agents_ask_nothing_that_only_the_demo_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = said("Agent('poet', model='demo')", tmp_path, monkeypatch)
    assert "chat --agent poet" in lines
    assert "/api/pai/poet/threads/hello/send" in lines
    assert "weather" not in lines
    assert "Warning" not in lines


def test_an_agent_whose_provider_has_no_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said("Agent('a', model='demo'), Agent('b', model='openai:gpt-5')", tmp_path, monkeypatch)
    assert "Warning: b: openai:gpt-5 cannot answer." in lines
    assert "OPENAI_API_KEY" in lines
