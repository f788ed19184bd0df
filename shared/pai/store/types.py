"""Column types: JSON kept as the text that was written."""

from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import UserDefinedType

from pai.protocol.json import dumps_text, loads


class Json(UserDefinedType[Any]):
    """JSON as text (`json` on PostgreSQL, TEXT on SQLite). Key order and bytes stay; a Python None is SQL NULL."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: None if value is None else dumps_text(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        # The store turns the driver's own parsing off, so text arrives from every database.
        return lambda value: None if value is None else loads(value)


@compiles(Json, "sqlite")
def _sqlite_json(type_: Json, compiler: Any, **_: Any) -> str:
    # A column declared JSON would get numeric affinity there, and the text 1 would come back as a number.
    return "TEXT"
