"""Writes the migration that takes the newest revision to what the tables declare now.

    python scripts/migration.py "post add colour"   # the next revision
    python scripts/migration.py --initial            # the first revision anew; only before a first release

It works in a scratch database of the PostgreSQL server at PAI_TEST_DATABASE_URL. Read the result before you commit it.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from alembic import command
from sqlalchemy import URL, create_engine, make_url, text

from pai.protocol.ids import new_id
from pai.store import migrations
from pai.store.schema import alembic_config, connection, head_revision, upgrade

DEFAULT_URL = "postgresql+psycopg://root@127.0.0.1:5432/postgres"
VERSIONS = Path(migrations.__file__).parent / "versions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("message", nargs="?", help="what the migration does")
    parser.add_argument("--initial", action="store_true", help="delete every revision and write the first one again")
    arguments = parser.parse_args()
    if arguments.initial == bool(arguments.message):
        parser.error("give either a message or --initial")
    if arguments.initial:
        for file in VERSIONS.glob("m*.py"):
            file.unlink()
    admin = make_url(os.environ.get("PAI_TEST_DATABASE_URL", DEFAULT_URL))
    name = new_id("migration").replace("-", "")
    execute(admin, f'CREATE DATABASE "{name}"')
    try:
        file = generate(admin.set(database=name), "initial" if arguments.initial else arguments.message)
    finally:
        execute(admin, f'DROP DATABASE "{name}"')
    print(file)


def generate(url: URL, message: str) -> Path:
    target = url.render_as_string(hide_password=False)
    if any(VERSIONS.glob("m*.py")):
        upgrade(target)
        revision = f"{int(head_revision()) + 1:04d}"
    else:
        revision = "0001"
    with connection(target) as connected:
        script = command.revision(alembic_config(connected), message=message, rev_id=revision, autogenerate=True)
    assert script is not None
    assert not isinstance(script, list)
    file = Path(script.path)
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "# ###" not in line))
    for arguments in (["format", "--quiet"], ["check", "--fix", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, str(file)], check=True)
    return file


def execute(url: URL, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connected:
        connected.execute(text(statement))
    engine.dispose()


if __name__ == "__main__":
    main()
