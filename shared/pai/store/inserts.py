"""Inserts that give way to a row that is there already: both databases have them, each in words of its own."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

from pai.store.database import POSTGRESQL, SQLITE

_INSERTS: dict[str, Any] = {POSTGRESQL: postgresql.insert, SQLITE: sqlite.insert}


def insert_once(table: Table, dialect: str, *, unique: Sequence[str] | None = None) -> Insert:
    """Inserts nothing where another row has the same values in the columns `unique`; None: in those of any constraint.

    `dialect`: of the store or of a connection (`connection.dialect.name`). With `returning` there is a row only when
    one was inserted.
    """
    statement: Insert = _INSERTS[dialect](table).on_conflict_do_nothing(index_elements=unique)
    return statement
