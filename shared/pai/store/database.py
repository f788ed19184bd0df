"""The engines: how PAI connects to SQLite and PostgreSQL.

Everything here serves two aims: SQLite writers of several processes never fail for the reason that two of them write,
and a transaction costs as few round trips as it can.
"""

import select
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pai.store.errors import DatabaseInvalid
from pai.store.sqlite import SqliteConnection, connect

SQLITE, POSTGRESQL = "sqlite", "postgresql"
# A transaction that reads before it writes fails when it upgrades its lock; an IMMEDIATE one waits for its turn.
BEGIN_IMMEDIATE = "BEGIN IMMEDIATE"
_DRIVERS = {SQLITE: ("aiosqlite", "pysqlite"), POSTGRESQL: ("psycopg", "psycopg")}
_LIBPQ = {
    "application_name": "pai",
    "connect_timeout": 5,
    # A connection whose peer vanished without a word must fail in seconds, not after the kernel's fifteen minutes.
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    # A process that is frozen in the middle of a transaction must not hold a thread's row for ever.
    "options": "-c idle_in_transaction_session_timeout=15s -c lock_timeout=10s",
}


@dataclass(frozen=True)
class Engines:
    """One pool on PostgreSQL. On SQLite `writer` is the one writing connection, and `reader` has a pool of its own."""

    dialect: str
    writer: AsyncEngine
    reader: AsyncEngine

    async def dispose(self) -> None:
        await self.writer.dispose()
        await self.reader.dispose()


def database_url(url: str, *, sync: bool = False) -> URL:
    """The URL with the driver PAI uses. Raises `DatabaseInvalid` for other databases and for SQLite in memory."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise DatabaseInvalid("The database URL cannot be parsed.") from error
    name = parsed.get_backend_name()
    dialect = POSTGRESQL if name == "postgres" else name
    if dialect not in _DRIVERS:
        raise DatabaseInvalid(f"{dialect} is not supported: use sqlite:///file or postgresql://.")
    if dialect == SQLITE and (not parsed.database or ":memory:" in parsed.database or "mode" in parsed.query):
        raise DatabaseInvalid("SQLite in memory is not shared by processes: name a file, sqlite:///pai.db.")
    return parsed.set(drivername=f"{dialect}+{_DRIVERS[dialect][sync]}")


def open_engines(url: str, *, pool_size: int, max_overflow: int, pool_timeout: timedelta) -> Engines:
    """Engines that connect on first use. `pool_*` apply to PostgreSQL, and to the readers of SQLite."""
    parsed = database_url(url)
    options: dict[str, Any] = {
        "pool_size": pool_size,
        "max_overflow": max_overflow,
        "pool_timeout": pool_timeout.total_seconds(),
        "pool_use_lifo": True,
        "pool_reset_on_return": None,
        "query_cache_size": 2000,
    }
    return _postgresql(parsed, options) if parsed.get_backend_name() == POSTGRESQL else _sqlite(parsed, options)


def sync_engine(url: str, *, foreign_keys: bool = True, **options: Any) -> Engine:
    """A blocking engine for threads and migrations. Transactions begin as those of `Store.write` do.

    `options` are those of SQLAlchemy's `create_engine`. Raises `DatabaseInvalid`.
    """
    parsed = database_url(url, sync=True)
    if parsed.get_backend_name() == POSTGRESQL:
        return create_engine(parsed, connect_args=_libpq(parsed), **options)
    _make_folder(parsed)
    engine = create_engine(parsed, **options)

    @event.listens_for(engine, "do_connect")
    def opened(dialect: Any, record: Any, arguments: Any, parameters: dict[str, Any]) -> Any:
        return connect(*arguments, foreign_keys=foreign_keys, **parameters)

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(BEGIN_IMMEDIATE)

    return engine


def _postgresql(url: URL, options: dict[str, Any]) -> Engines:
    try:
        import psycopg
        from psycopg.adapt import AdaptersMap
        from psycopg.types.string import TextLoader

        from pai.store.pipeline import PipelinedConnection
    except ImportError as error:
        raise DatabaseInvalid("PostgreSQL needs psycopg: install pai-backend[postgres].") from error
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("json", TextLoader)  # `types.Json` does the parsing, from the text as it was written
    engine = create_async_engine(
        url,
        connect_args={
            **_libpq(url),
            "context": adapters,
            "autocommit": True,  # `PipelinedConnection.begin` opens the transactions
            "async_creator_fn": PipelinedConnection.connect,
        },
        use_native_hstore=False,
        **options,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        driver = connection.driver_connection
        driver.prepared_max = 500
        record.info["poll"] = poll = select.poll()
        poll.register(driver.fileno(), select.POLLIN)

    @event.listens_for(engine.sync_engine, "checkout")
    def checked_out(connection: Any, record: Any, proxy: Any) -> None:
        # An idle connection has nothing to read unless the server ended it: a ping without a round trip.
        if record.info["poll"].poll(0):
            raise exc.DisconnectionError

    @event.listens_for(engine.sync_engine, "reset")
    def returned(connection: Any, record: Any, state: Any) -> None:
        # Only a connection that still is in a transaction pays for a ROLLBACK.
        if not state.terminate_only and not connection.driver_connection.is_idle:
            connection.rollback()

    @event.listens_for(engine.sync_engine, "handle_error")
    def failed(context: Any) -> None:
        # After a failover this connection may be to a former primary; a new one finds the new primary.
        if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction) and context.connection:
            context.is_disconnect = "READ ONLY" not in (context.connection.connection.driver_connection.begin or "")

    return Engines(dialect=POSTGRESQL, writer=engine, reader=engine)


def _libpq(url: URL) -> dict[str, Any]:
    """Our defaults; what the URL says itself wins."""
    return {name: value for name, value in _LIBPQ.items() if name not in url.query}


def _make_folder(url: URL) -> None:
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)


def _sqlite(url: URL, options: dict[str, Any]) -> Engines:
    _make_folder(url)
    driver: dict[str, Any] = {"async_creator_fn": SqliteConnection}
    writer = create_async_engine(url, connect_args=driver, **{**options, "pool_size": 1, "max_overflow": 0})
    reader = create_async_engine(url, connect_args={**driver, "query_only": True}, **options)
    for engine in (writer, reader):

        @event.listens_for(engine.sync_engine, "reset")
        def returned(connection: Any, record: Any, state: Any) -> None:
            if not state.terminate_only and not connection.driver_connection.is_idle:
                connection.rollback()

    return Engines(dialect=SQLITE, writer=writer, reader=reader)
