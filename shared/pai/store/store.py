"""The store: the one door to the database, with one method per kind of transaction.

    async with Store.open(url) as store:
        async with store.write() as connection:
            thread = (await connection.execute(select(...).with_for_update())).first()
            await execute_all(connection, [(insert(...), {...}), (update(...), {...})])

Rows arrive whole: there are no server-side cursors.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pai.store.database import BEGIN_IMMEDIATE, POSTGRESQL, SQLITE, Engines, open_engines
from pai.store.errors import Contended, database_errors
from pai.store.statements import Statement, driver_statements

if TYPE_CHECKING:
    from pai.store.pipeline import PipelinedConnection
    from pai.store.sqlite import SqliteConnection

T = TypeVar("T")

_RETRIES = 3
_BEGIN = {
    POSTGRESQL: ("BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
    SQLITE: (BEGIN_IMMEDIATE, "BEGIN"),
}


class Store:
    """Every method raises `Unavailable` when the database cannot be used, and its subclass `Contended` when another
    transaction was in the way. Other SQLAlchemy errors pass through."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self.dialect = engines.dialect
        self._begin_write, self._begin_read = _BEGIN[self.dialect]

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = 10,
        max_overflow: int = 0,
        pool_timeout: timedelta = timedelta(seconds=30),
    ) -> AsyncIterator["Store"]:
        """Connects on first use, so that a process may start while its database is away.

        Raises DatabaseInvalid for a URL that is neither PostgreSQL nor an SQLite file.
        """
        engines = open_engines(url, pool_size=pool_size, max_overflow=max_overflow, pool_timeout=pool_timeout)
        try:
            yield cls(engines)
        finally:
            await engines.dispose()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed on exit, rolled back when the block raises.

        Never await anything but the database inside: it holds locks. READ COMMITTED on PostgreSQL. On SQLite the
        process has one writing connection, and a transaction excludes all other writers from its first statement on.
        """
        async with self._connected(self._engines.writer, self._begin_write) as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A read-only transaction in which every statement sees the same state of the database."""
        async with self._connected(self._engines.reader, self._begin_read) as connection:
            yield connection

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """Each statement is a transaction of its own: claims, renewals, and other single statements."""
        async with self._connected(self._engines.writer, None) as connection:
            yield connection

    async def run_write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """`work` in a `write()`; done again, up to three times, when another transaction was in the way.

        `work` may run more than once, so it must change nothing but the database.
        """
        for attempt in range(_RETRIES):
            try:
                async with self.write() as connection:
                    return await work(connection)
            except Contended:
                await asyncio.sleep(random.uniform(0.5, 1.5) * 0.02 * 4**attempt)
        async with self.write() as connection:
            return await work(connection)

    @asynccontextmanager
    async def _connected(self, engine: AsyncEngine, begin: str | None) -> AsyncIterator[AsyncConnection]:
        with database_errors():
            connection = await engine.connect()
            try:
                driver = _driver(connection)
                driver.begin = begin
                yield connection
                if begin is not None:
                    await _sqlalchemy_errors(connection, driver.commit())
                await connection.close()
            except BaseException:
                # Returning the connection rolls back. A cancelled caller must not leave it behind half returned.
                await asyncio.shield(asyncio.ensure_future(connection.close()))
                raise


async def execute_all(connection: AsyncConnection, statements: Iterable[Statement]) -> None:
    """Writes whose results nobody needs, in a `write()`: they travel with its COMMIT, or with the next statement.

    So an error (a constraint, say) surfaces there. Outside of a transaction they are sent at once.
    """
    driver = _driver(connection)
    if driver.begin is None:
        await fetch_all(connection, statements)
        return
    made = [(plan.sql, values) for plan, values in driver_statements(connection.dialect, statements)]
    await _sqlalchemy_errors(connection, _put_off(driver, made))


async def fetch_all(connection: AsyncConnection, statements: Iterable[Statement]) -> list[list[dict[str, Any]]]:
    """The rows of each statement, by column name; all travel in one exchange, and each sees what those before it did.

    The statements are compiled once and kept, so they must be made once. Raises what SQLAlchemy raises, and KeyError
    for a parameter that is missing.
    """
    made = driver_statements(connection.dialect, statements)
    if not made:
        return []
    fetching = _driver(connection).fetch_all([(plan.sql, values) for plan, values in made])
    answers = await _sqlalchemy_errors(connection, fetching)
    return [plan.rows(rows) for (plan, _), rows in zip(made, answers, strict=True)]


async def _put_off(driver: "PipelinedConnection | SqliteConnection", made: list[tuple[str, Any]]) -> None:
    driver.put_off_all(made)


async def _sqlalchemy_errors(connection: AsyncConnection, work: Awaitable[T]) -> T:
    """SQLAlchemy's own handling for what its driver did behind its back: errors, lost connections, cancellation."""
    try:
        return await work
    except BaseException as error:
        await connection.run_sync(_handle, error)
        raise


def _handle(connection: Connection, error: BaseException) -> None:
    try:
        raise error
    except BaseException as caught:
        connection._handle_dbapi_exception(caught, None, None, None, None)


def _driver(connection: AsyncConnection) -> "PipelinedConnection | SqliteConnection":
    assert connection.sync_connection is not None
    return cast("PipelinedConnection | SqliteConnection", connection.sync_connection.connection.driver_connection)
