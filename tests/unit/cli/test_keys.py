"""`paictl keys` makes, shows and revokes keys, and its output suits scripts."""

import argparse
import re
from pathlib import Path

import pytest

from pai.cli import main
from pai.cli.chat import _headers
from pai.protocol.errors import PaiError


@pytest.fixture
def database(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PAI_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("PAI_IDENTITY", "keys")
    return sqlite_url


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["keys", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_key_is_shown_once_and_alone(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, told = run(capsys, "create", "ci job", "--subject", "ci", "--tenant", "acme", "--expires", "90d")
    assert code == 0
    key = re.fullmatch(r"pai_([0-9a-f]{16})_([\w-]{43})\n", printed)
    assert key
    assert told == ""
    code, listed, _ = run(capsys, "list")
    assert (code, listed.count("\n")) == (0, 1)
    assert re.fullmatch(rf"{key[1]}  valid until \d{{4}}-\d\d-\d\d  never used        acme/ci  ci job\n", listed)
    assert key[2] not in listed


def test_a_revoked_key_is_shown_as_revoked(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    key_id = run(capsys, "create", "a", "--subject", "s", "--trusted")[1].split("_")[1]
    assert "default/s (trusted)" in run(capsys, "list")[1]
    code, printed, _ = run(capsys, "revoke", key_id)
    assert (code, printed) == (0, f"The key {key_id} (a) is revoked; what it opened ends within a minute.\n")
    assert re.search(r"revoked \d{4}-", run(capsys, "list")[1])


def test_a_person_is_told_what_to_know_about_a_new_key(
    database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    told = run(capsys, "create", "a", "--subject", "s")[2]
    assert re.fullmatch(r"This is the only time that key [0-9a-f]{16} is shown\.\n", told)
    monkeypatch.setenv("PAI_IDENTITY", "anonymous")
    assert "PAI_IDENTITY=keys" in run(capsys, "create", "a", "--subject", "s")[2]


@pytest.mark.parametrize(
    "argv",
    [
        ("revoke", "nothing"),
        ("create", "", "--subject", "s"),
        ("create", "a", "--subject", ""),
        ("create", "a", "--subject", "x" * 2000),
        *(("create", "a", "--subject", "s", "--expires", text) for text in ("", "1", "0d", "1.5d", "1y", "99999999d")),
    ],
)
def test_a_mistake_is_one_line_and_makes_no_key(
    database: str, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    code, printed, told = run(capsys, *argv)
    assert (code, printed) == (1, "")
    assert told.startswith("paictl: ")
    assert told.count("\n") == 1
    assert run(capsys, "list")[1] == ""


def test_a_database_without_a_schema_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_DATABASE_URL", f"sqlite:///{tmp_path / 'new.db'}")
    code, _, told = run(capsys, "list")
    assert code == 1
    assert "paictl db upgrade" in told


def options(token: str | None = None, header: list[str] | None = None) -> argparse.Namespace:
    return argparse.Namespace(token=token, header=header)


def test_the_chat_sends_a_token_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _headers(options()) == {}
    assert _headers(options("t")) == {"authorization": "Bearer t"}
    monkeypatch.setenv("PAI_TOKEN", "from the environment")
    assert _headers(options()) == {"authorization": "Bearer from the environment"}
    assert _headers(options("t", ["X-User: anna", "x-empty:"])) == {
        "authorization": "Bearer t",
        "x-user": "anna",
        "x-empty": "",
    }
    assert _headers(options("t", ["Authorization: Basic x:y"])) == {"authorization": "Basic x:y"}


@pytest.mark.parametrize("header", ["", "no colon", ": value", "a b: c", "é: x", "x: é", "x: a\nb: c", "x: \x00"])
def test_what_is_no_header_is_refused(header: str) -> None:
    with pytest.raises(PaiError):
        _headers(options(header=[header]))
