"""The doctor finds what is wrong, on real parts, and says what to do."""

import argparse
import http.server
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from pai.cli import checks, doctor
from pai.cli.checks import Finding, Level
from pai.cli.environment import read_settings
from pai.protocol.errors import PaiError
from pai.settings import Settings
from pai.store.schema import upgrade
from support.servers import PrivateRedis

NOBODY = "127.0.0.1:1"


def found(check: Callable[[Settings], Iterator[Finding]], **options: Any) -> Finding:
    (finding,) = check(Settings(**options))
    return finding


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module with agents; what `PAI_AGENTS` is then."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> str:
        name = f"agents_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(f"from pai import Agent, Registry\nregistry = Registry({source})\n")
        return f"{name}:registry"

    return write


def test_agents_that_are_there_are_named(module: Callable[[str], str]) -> None:
    finding = found(checks.agents, agents=module("Agent('one', model='demo'), Agent('two', model='demo')"))
    assert (finding.level, finding.said.split(" from ")[0]) == (Level.good, "one, two")


def test_an_empty_registry_and_a_missing_module_are_bad(module: Callable[[str], str]) -> None:
    assert found(checks.agents, agents=module("")).level is Level.bad
    finding = found(checks.agents, agents="nowhere:registry")
    assert finding.level is Level.bad
    assert "no module 'nowhere'" in finding.said


def test_a_model_without_its_key_says_which_key(module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    agents = module("Agent('one', model='anthropic:claude-sonnet-4-5')")
    finding = found(checks.model_keys, agents=agents)
    assert finding.level is Level.bad
    assert "ANTHROPIC_API_KEY" in finding.todo
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    assert found(checks.model_keys, agents=agents).level is Level.good


def test_a_database_that_is_not_there_yet_is_a_note_and_stays_away(tmp_path: Path) -> None:
    file = tmp_path / "pai.db"
    assert found(checks.database, database_url=f"sqlite:///{file}").level is Level.note
    assert not file.exists()


def test_an_older_schema_says_how_to_upgrade(tmp_path: Path) -> None:
    file = tmp_path / "pai.db"
    sqlite3.connect(file).close()
    file.touch()
    url = f"sqlite:///{file}"
    finding = found(checks.database, database_url=url)
    assert (finding.level, finding.todo) == (Level.bad, "Run `paictl db upgrade`.")
    upgrade(url)
    assert found(checks.database, database_url=url).level is Level.good


@pytest.mark.parametrize(
    ("check", "options"),
    [
        (checks.database, {"database_url": f"postgresql://user:secret@{NOBODY}/pai"}),
        (checks.redis, {"redis_url": f"redis://user:secret@{NOBODY}"}),
        (checks.broker, {"broker_url": f"amqp://user:secret@{NOBODY}//"}),
    ],
)
def test_a_server_that_is_away_is_bad_and_no_password_is_shown(
    check: Callable[[Settings], Iterator[Finding]], options: dict[str, Any]
) -> None:
    finding = found(check, **options)
    assert finding.level is Level.bad
    assert next(iter(options)).upper() in finding.todo
    assert "secret" not in finding.said


def test_a_redis_that_evicts_says_what_to_set(own_redis: PrivateRedis) -> None:
    assert found(checks.redis, redis_url=own_redis.url).level is Level.good
    with redis_client.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    finding = found(checks.redis, redis_url=own_redis.url)
    assert finding.level is Level.bad
    assert "noeviction" in finding.todo


def test_the_embedded_server_that_does_not_run_is_a_note(tmp_path: Path) -> None:
    assert found(checks.redis, home=tmp_path).level is Level.note


def test_a_broker_that_is_the_redis_is_not_looked_at_twice() -> None:
    assert list(checks.broker(Settings(redis_url=f"redis://{NOBODY}"))) == []


class Readiness(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


@pytest.mark.parametrize(("status", "level"), [(200, Level.good), (503, Level.bad), (404, Level.bad)])
def test_what_answers_on_the_port_is_told_apart(status: int, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Readiness, "status", status)
    with http.server.HTTPServer(("127.0.0.1", 0), Readiness) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        finding = found(checks.port, port=server.server_port)
        server.shutdown()
        serving.join()
    assert finding.level is level


def test_a_free_port_is_a_note() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert found(checks.port, port=port).level is Level.note


def test_anonymous_callers_everywhere_are_noted() -> None:
    assert found(checks.safety, allow_anonymous=True).level is Level.note
    assert list(checks.safety(Settings())) == []


def test_an_identity_that_cannot_work_says_what_is_wrong() -> None:
    assert list(checks.identity(Settings())) == []
    finding = found(checks.identity, identity="jwt")
    assert finding.level is Level.bad
    assert "PAI_JWT_SECRET" in finding.said
    assert found(checks.identity, identity="nowhere:who").level is Level.bad
    assert found(checks.identity, host="0.0.0.0").level is Level.bad
    assert found(checks.identity, identity="keys").said == "keys"


def test_the_keys_of_an_identity_provider_are_read(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    settings = Settings(identity="jwt, keys", jwt_jwks=str(file), jwt_issuer="issuer", jwt_audience=("pai",))
    assert [finding.level for finding in checks.identity(settings)] == [Level.good, Level.bad]
    file.write_text('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}')
    assert [finding.said for finding in checks.identity(settings)] == ["jwt, keys", f"{file} has 1 key"]


def test_tokens_for_somebody_else_are_warned_of() -> None:
    findings = list(checks.identity(Settings(identity="jwt", jwt_secret="x" * 32)))
    assert [finding.level for finding in findings] == [Level.good, Level.note]
    assert "PAI_JWT_AUDIENCE" in findings[1].todo


def test_the_exit_code_tells_whether_something_is_missing(
    tmp_path: Path, own_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'pai.db'}"
    upgrade(url)
    monkeypatch.setenv("PAI_DATABASE_URL", url)
    monkeypatch.setenv("PAI_REDIS_URL", own_redis.url)
    monkeypatch.setenv("PAI_PORT", "0")
    assert doctor.run(argparse.Namespace()) == 0
    assert capsys.readouterr().out.endswith("All is well.\n")
    own_redis.stop()
    assert doctor.run(argparse.Namespace()) == 1
    assert capsys.readouterr().out.endswith("1 to mend.\n")
    monkeypatch.setenv("PAI_PORT", "high")
    assert doctor.run(argparse.Namespace()) == 1
    assert "PAI_PORT" in capsys.readouterr().out


def test_a_wrong_setting_is_named_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_PORT", "abc")
    monkeypatch.setenv("PAI_JWT_SECRET", "short")
    with pytest.raises(PaiError) as raised:
        read_settings()
    assert "PAI_PORT: " in raised.value.detail
    assert "PAI_JWT_SECRET: must have 32 bytes" in raised.value.detail
    assert "PAI_FILES" not in raised.value.detail


def test_a_misspelt_setting_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_PROT", "80")
    monkeypatch.setenv("PAI_PORT", "80")
    monkeypatch.setenv("PAI_OF_MY_OWN_APPLICATION", "1")
    finding = found(checks.environment)
    assert (finding.level, finding.todo) == (Level.note, "Do you mean PAI_PORT?")
    assert finding.said.startswith("PAI_PROT ")
