"""The database's clock as a SQL expression.

Leases are compared by this clock only: hosts disagree, one database does not.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ScalarSelect, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):
    """Integer milliseconds since the epoch, UTC, at the time the statement runs (not when its transaction began)."""

    type = BigInteger()
    inherit_cache = True
    name = "now_ms"


def now_once() -> ScalarSelect[int]:
    """The same, read once when the statement begins, so that an index can be searched for it."""
    return select(now_ms()).scalar_subquery()


@dataclass(frozen=True, slots=True)
class FromNow:
    """A time that is told to the database as a distance from its own: so many milliseconds after the statement runs."""

    milliseconds: int = 0


@compiles(now_ms, "postgresql")
def _postgresql(element: now_ms, compiler: Any, **_: Any) -> str:
    return "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"


@compiles(now_ms, "sqlite")
def _sqlite(element: now_ms, compiler: Any, **_: Any) -> str:
    # A Julian day is whole milliseconds divided by a day's worth, so rounding gives the milliseconds back exactly.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
