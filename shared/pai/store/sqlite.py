"""SQLite connections: set up for several processes, and with fewer crossings between threads.

aiosqlite crosses to the connection's thread for every cursor, fetch and close. Here a statement is one crossing, BEGIN
travels with the first one, and the statements of `execute_all` travel with COMMIT. The counterpart of
`pai.store.pipeline`, with the same attributes.
"""

import sqlite3
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import aiosqlite

# How long a statement waits for another writer before SQLITE_BUSY.
BUSY_TIMEOUT = timedelta(seconds=15)


def connect(
    database: str, *, foreign_keys: bool = True, query_only: bool = False, **options: Any
) -> sqlite3.Connection:
    """A connection that opens no transactions by itself. Blocks. `options` are those of `sqlite3.connect`."""
    busy_timeout = BUSY_TIMEOUT // timedelta(milliseconds=1)
    connection: sqlite3.Connection = sqlite3.connect(database, isolation_level=None, cached_statements=500, **options)
    try:
        connection.execute(f"PRAGMA busy_timeout={busy_timeout}")
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA foreign_keys={foreign_keys:d}")
        connection.execute(f"PRAGMA query_only={query_only:d}")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """The file keeps the mode. SQLite does not wait for others that set it at the same time, so this does."""
    ends = time.monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                raise
            time.sleep(0.01)


class _Statement(NamedTuple):
    sql: str
    parameters: Any = ()
    many: bool = False


class _Answer(NamedTuple):
    rows: list[Any]
    description: Any
    rowcount: int
    lastrowid: int | None


_NOTHING = _Answer([], None, -1, None)


class SqliteConnection(aiosqlite.Connection):
    """`begin`: the statement that opens a transaction with the first one; None leaves each statement on its own."""

    begin: str | None = None

    def __init__(self, database: str, **options: Any) -> None:
        super().__init__(lambda: connect(database, **options), iter_chunk_size=64)
        self._thread.daemon = True
        self._waiting: list[_Statement] = []
        # False from the first statement until the transaction is known to have ended, so also when a wait was cancelled
        # while the thread goes on.
        self.is_idle = True

    def cursor(self) -> "SqliteCursor":  # type: ignore[override]
        return SqliteCursor(self)

    async def run(self, statement: _Statement) -> _Answer:
        self._waiting.append(statement)
        statements, self._waiting = self._waiting, []
        answers = await self._run(statements)
        return answers[-1]

    def put_off_all(self, statements: Sequence[tuple[str, Any]]) -> None:
        """Statements with their parameters: run before the next one, or with COMMIT."""
        self._waiting += [_Statement(sql, parameters) for sql, parameters in statements]
        self.is_idle = False

    async def fetch_all(self, statements: Sequence[tuple[str, Any]]) -> list[list[Any]]:
        """Runs statements in one crossing; the rows of each."""
        self.put_off_all(statements)
        waiting, self._waiting = self._waiting, []
        answers = await self._run(waiting)
        return [answer.rows for answer in answers[-len(statements) :]]

    async def _run(self, statements: Sequence[_Statement]) -> list[_Answer]:
        self.is_idle = False
        answers: list[_Answer] = await self._execute(self._run_all, self.begin, statements)  # type: ignore[no-untyped-call]
        self.is_idle = not self._conn.in_transaction
        return answers

    async def commit(self) -> None:
        if not self.is_idle:
            statements, self._waiting = self._waiting, []
            await self._execute(self._run_and_commit, self.begin, statements)  # type: ignore[no-untyped-call]
            self.is_idle = True

    async def rollback(self) -> None:
        if not self.is_idle:
            self._waiting.clear()
            await self._execute(self._conn.rollback)  # type: ignore[no-untyped-call]
            self.is_idle = True

    def _run_all(self, begin: str | None, statements: Sequence[_Statement]) -> list[_Answer]:
        connection, answers = self._conn, []
        if begin is not None and not connection.in_transaction:
            connection.execute(begin).close()
        for statement in statements:
            cursor = connection.cursor()
            (cursor.executemany if statement.many else cursor.execute)(statement.sql, statement.parameters)
            rows = [] if cursor.description is None else cursor.fetchall()
            answers.append(_Answer(rows, cursor.description, cursor.rowcount, cursor.lastrowid))
            cursor.close()
        return answers

    def _run_and_commit(self, begin: str | None, statements: Sequence[_Statement]) -> None:
        if statements:
            self._run_all(begin, statements)
        self._conn.commit()


class SqliteCursor:
    """What SQLAlchemy uses of a cursor; the rows are already here when `execute` returns."""

    arraysize = 1

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._answer = _NOTHING

    async def __aenter__(self) -> "SqliteCursor":
        return self

    @property
    def description(self) -> Any:
        return self._answer.description

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._answer.lastrowid

    async def execute(self, sql: str, parameters: Any = ()) -> "SqliteCursor":
        self._answer = await self._connection.run(_Statement(sql, parameters))
        return self

    async def executemany(self, sql: str, parameters: Sequence[Any]) -> "SqliteCursor":
        self._answer = await self._connection.run(_Statement(sql, parameters, many=True))
        return self

    async def fetchall(self) -> list[Any]:
        return self._answer.rows

    async def close(self) -> None:
        """The thread closed its cursor with the statement."""
