"""The schema's revision: upgrade it, ask for it, and refuse to work on an older one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.pool import NullPool

from pai.store import migrations
from pai.store.database import POSTGRESQL, sync_engine
from pai.store.errors import SchemaOutdated, database_errors
from pai.store.store import Store

# Processes that upgrade at the same time take turns. Any constant does; this one spells PAI.
_UPGRADE_LOCK = 0x504149


def head_revision() -> str:
    """The revision this version of PAI needs."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    if head is None:
        raise RuntimeError("the package was built without its migrations")
    return head


def current_revision(url: str) -> str | None:
    """The database's revision; None when it has no schema. Blocks. Raises `Unavailable`, `DatabaseInvalid`."""
    with connection(url) as connected:
        return MigrationContext.configure(connected).get_current_revision()


def upgrade(url: str) -> str:
    """Migrates to the newest revision and returns it. Blocks. Safe to run from several processes at once.

    Raises `SchemaOutdated` when a newer version has migrated it further; `Unavailable`, `DatabaseInvalid`.
    """
    with connection(url) as connected:
        current = MigrationContext.configure(connected).get_current_revision()
        if current is not None and current > head_revision():
            raise SchemaOutdated(current, head_revision())
        command.upgrade(alembic_config(connected), "head")
    return head_revision()


async def check_schema(store: Store) -> None:
    """Raises `SchemaOutdated` unless the database has the revision this version needs; `Unavailable`."""
    async with store.read() as connected:
        current = await connected.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    head = head_revision()
    if current != head:
        raise SchemaOutdated(current, head)


def alembic_config(connected: Connection | None = None) -> Config:
    """What Alembic's commands take; they work on the connection given here."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("file_template", "m%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connected
    return config


@contextmanager
def connection(url: str) -> Iterator[Connection]:
    """A blocking connection inside one transaction that excludes other upgrades."""
    # A table that SQLite rebuilds is dropped in between, which must not cascade.
    engine = sync_engine(url, foreign_keys=False, poolclass=NullPool)
    with database_errors(), engine.begin() as connected:
        if engine.dialect.name == POSTGRESQL:
            connected.execute(text("SET LOCAL lock_timeout = 0"))  # an upgrade may take its time
            connected.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connected.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
        yield connected
