"""Where the errors of database drivers become PAI's own, so that nothing above the store knows a driver.

What means "the database cannot be used now" becomes `Unavailable` (503, try again). A wrong statement or a violated
constraint is a bug or a decision of the caller and passes through untouched.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from pai.protocol.errors import PaiError, Unavailable

# A transaction that failed with one of these changed nothing, and the same transaction may succeed now.
_CONTENTION = frozenset({"40001", "40P01", "55P03", "SQLITE_BUSY", "SQLITE_LOCKED"})
# Connection lost, resources used up, shut down, input/output.
_OUTAGES = ("08", "53", "57", "58")
_SQLITE_OUTAGES = ("BUSY", "LOCKED", "IOERR", "FULL", "CANTOPEN", "READONLY_", "PROTOCOL", "NOMEM", "INTERRUPT")


class Contended(Unavailable):
    """Another transaction was in the way and this one was rolled back. Doing it again may succeed."""

    title = "The database is busy"


class DatabaseInvalid(PaiError):
    """The database URL is not one PAI can use."""

    title = "The database URL is not usable"


class SchemaOutdated(PaiError):
    """The database was not migrated to the revision this code needs."""

    title = "The database schema is outdated"

    def __init__(self, current: str | None, head: str) -> None:
        state = "has no schema" if current is None else f"is at schema revision {current}"
        newer = current is not None and current > head
        todo = "A newer version of PAI made it: install that." if newer else "Run `paictl db upgrade`."
        super().__init__(f"The database {state}, this version needs {head}. {todo}")
        self.current = current
        self.head = head


@contextmanager
def database_errors() -> Iterator[None]:
    """Maps driver errors raised inside to `Unavailable` or `Contended`; the original is the cause."""
    try:
        yield
    except exc.DBAPIError as error:
        mapped = _mapped(error)
        if mapped is None:
            raise
        raise mapped from error
    except exc.TimeoutError as error:
        raise Unavailable("Every database connection is in use.") from error


def _mapped(error: exc.DBAPIError) -> Unavailable | None:
    code = _code(error)
    if error.connection_invalidated or (code is None and isinstance(error, exc.OperationalError)):
        return Unavailable()
    if code is None:
        return None
    if code in _CONTENTION or code.startswith(("SQLITE_BUSY_", "SQLITE_LOCKED_")):
        return Contended()
    if code.startswith("SQLITE_"):
        return Unavailable() if code.removeprefix("SQLITE_").startswith(_SQLITE_OUTAGES) else None
    return Unavailable() if code.startswith(_OUTAGES) else None


def _code(error: exc.DBAPIError) -> str | None:
    """SQLSTATE on PostgreSQL, the symbolic error code on SQLite; None when the connection itself failed."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    return None if code is None else str(code)
