"""Ctrl-C while `paictl dev` starts ends it quietly and completely, whatever it does at that moment."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.pool import NullPool

from pai.store.database import sync_engine
from pai.store.schema import connection
from support.dev_server import PAICTL, DevServer
from support.processes import alive, killed_at_end
from support.waiting import wait_until_sync

_WAITING = (
    "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
)


@contextmanager
def starting(
    server: DevServer, *arguments: str, directory: Path, **environment: str
) -> Iterator["subprocess.Popen[str]"]:
    """`paictl dev`, not waited for."""
    process = server.process = subprocess.Popen(
        [str(PAICTL), "dev", *arguments, "--port", str(server.port)],
        cwd=directory,
        env={**os.environ, "PAI_HOME": str(server.home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with killed_at_end([process.pid]):
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def interrupted(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and everything that it printed."""
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=40)
    return process.returncode, printed


def test_while_something_is_imported_that_lets_no_exception_through(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import pathlib, time\n"
        "while True:\n"
        "    try:\n"
        "        pathlib.Path('imported').touch()\n"
        "        time.sleep(60)\n"
        "    except BaseException:\n"
        "        pass\n"
    )
    with starting(DevServer(tmp_path / "home"), "stubborn:registry", directory=tmp_path) as process:
        wait_until_sync((tmp_path / "imported").exists)
        assert interrupted(process) == (130, "")


def test_in_the_middle_of_the_migration(tmp_path: Path, bare_postgres_url: str) -> None:
    def waits() -> bool:
        with engine.connect() as asked:
            return asked.execute(text(_WAITING)).first() is not None

    engine = sync_engine(bare_postgres_url, poolclass=NullPool)
    environment = {"PAI_DATABASE_URL": bare_postgres_url}
    server = DevServer(tmp_path / "home")
    with connection(bare_postgres_url), starting(server, directory=tmp_path, **environment) as process:
        wait_until_sync(waits)
        assert interrupted(process) == (130, "")


@pytest.mark.parametrize("name", ["valkey-server", "cli worker"])
def test_while_its_parts_are_started(tmp_path: Path, name: str) -> None:
    server = DevServer(tmp_path / "home")
    with starting(server, directory=tmp_path) as process:
        wait_until_sync(lambda: any(name in line for line in server.children().values()))
        children = server.children()
        with killed_at_end(list(children)):
            code, printed = interrupted(process)
            assert (code, printed.splitlines()) == (0, ["Stopping. Once more to stop at once.", "Stopped."])
            assert not any(alive(pid) for pid in children)
