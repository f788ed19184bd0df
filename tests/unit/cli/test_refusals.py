"""What a person must mend first is said in one line, before anything is started."""

import argparse
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pai.cli import dev
from pai.cli.environment import left_out, read_settings, told
from pai.protocol.errors import PaiError
from pai.store.schema import upgrade
from support.dev_server import PAICTL

NOBODY = "127.0.0.1:1"


def ran(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PAICTL), *arguments], env={**os.environ, **environment}, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize("command", ["api", "worker"])
def test_a_process_refuses_a_database_without_a_schema_in_one_line(tmp_path: Path, command: str) -> None:
    done = ran(command, PAI_HOME=str(tmp_path), PAI_PORT="0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("paictl: The database has no schema, this version needs ")
    assert done.stderr.endswith(". Run `paictl db upgrade`.\n")


def test_a_database_that_a_newer_version_made_is_not_upgraded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pai.db'}"
    upgrade(url)
    with sqlite3.connect(tmp_path / "pai.db") as changed:
        changed.execute("UPDATE alembic_version SET version_num = '9999'")
    changed.close()
    with pytest.raises(PaiError, match=r"revision 9999, .* A newer version of PAI made it: install that\."):
        upgrade(url)


def test_a_database_that_is_away_is_named_without_its_password() -> None:
    with pytest.raises(PaiError) as raised:
        upgrade(f"postgresql://user:secret@{NOBODY}/pai")
    line = told(raised.value)
    assert line.startswith("The database is unreachable: ")
    assert line.endswith(" Start it, or correct PAI_DATABASE_URL.")
    assert "secret" not in line


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"IDENTITY": "jwt"}, "PAI_JWT_SECRET"),
        ({"IDENTITY": "jwt", "JWT_JWKS": "/no/such/file"}, "No such file"),
        ({"IDENTITY": "nowhere:who"}, "No module named 'nowhere'"),
        ({"IDENTITY": "broken:who"}, "failed with ZeroDivisionError"),
        ({"IDENTITY": "resolvers:two"}, "must take one argument, the request"),
        ({"HOST": "0.0.0.0"}, "PAI_ALLOW_ANONYMOUS"),
        ({"REDIS_URL": "foo://redis"}, "PAI_REDIS_URL"),
        ({"REDIS_URL": "redis://[x"}, "PAI_REDIS_URL"),
        ({"REDIS_URL": f"redis://{NOBODY}"}, "PAI_REDIS_URL"),
        ({"BROKER_URL": "foo://broker"}, "PAI_BROKER_URL"),
        ({"FILES": "s3://"}, "expected s3://bucket"),
    ],
)
def test_dev_refuses_what_its_parts_could_not_work_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "resolvers.py").write_text("def two(request, other): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in {"HOME": str(tmp_path / "home"), **variables}.items():
        monkeypatch.setenv(f"PAI_{name}", value)
    with pytest.raises(PaiError, match=said) as raised:
        dev.run(argparse.Namespace())
    assert "\n" not in raised.value.detail
    assert not (tmp_path / "home" / "pai.db").exists()


@pytest.mark.parametrize("value", ["example.com", "ftp://example.com", "https://", "/files"])
def test_what_is_no_address_is_no_setting(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setenv("PAI_PUBLIC_URL", value)
    with pytest.raises(PaiError, match=r"PAI_PUBLIC_URL: must be an address such as https://example\.com"):
        read_settings()


@pytest.mark.parametrize("command", [["dev"], ["api"], ["worker"], ["db", "upgrade"], ["doctor"]])
def test_a_part_whose_libraries_are_not_installed_says_what_to_install(tmp_path: Path, command: list[str]) -> None:
    without = (
        "import sys\n"
        "for name in ('sqlalchemy', 'alembic', 'celery', 'redis'):\n"
        "    sys.modules[name] = None\n"
        "from pai.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    environment = {**os.environ, "PAI_HOME": str(tmp_path), "PAI_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", without, *command], env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert " is not installed here. Install pai-backend[all]" in (done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


def test_a_module_that_an_application_lacks_is_no_extra_of_pai() -> None:
    namespace = {"__name__": "my_app"}
    with pytest.raises(ModuleNotFoundError) as raised:
        exec("import nothing_like_that", namespace)
    assert left_out(raised.value) is None
