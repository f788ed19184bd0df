"""Statements of the hot path: compiled once, then sent several at a time in one exchange with the database.

SQLAlchemy runs one statement after the other, and prepares each anew. Here the parameters of a compiled statement are
converted by the processors of their types, everything goes to the driver together, and the rows that come back are
converted the same way. Transactions, pools and errors stay SQLAlchemy's.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.compiler import SQLCompiler

Parameters = dict[str, Any] | list[dict[str, Any]] | None
Statement = tuple[Executable, Parameters]
Convert = Callable[[Any], Any] | None


class Compiled:
    """A statement in the database's own words, and how its parameters and rows are converted."""

    def __init__(self, statement: Executable, dialect: Dialect, names: tuple[str, ...]) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(names) or None)  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        required = {bind.key: name for bind, name in compiled.bind_names.items() if bind.required}
        if any(bind.expanding and bind.required for bind in compiled.bind_names):
            raise TypeError("A list of unknown length cannot be a parameter here.")
        given = {name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required}
        # Lists that are part of the statement get a parameter for each of their values.
        expanded = compiled._process_parameters_for_postcompile(given | dict.fromkeys(required.values()))
        processors: dict[str, Any] = {**compiled._bind_processors, **expanded.processors}
        self.sql = str(expanded.statement)
        self._binds: list[tuple[str, str, Convert]] = [
            (name, key, processors.get(name)) for key, name in required.items()
        ]
        self._constants = {
            name: value if (process := processors.get(name)) is None else process(value)
            for name, value in expanded.parameters.items()
            if name not in required.values()
        }
        self._order = expanded.positiontup if compiled.positional else None
        self._columns: list[tuple[str, Convert]] = [
            (column.keyname, column.type.dialect_impl(dialect).result_processor(dialect, None))
            for column in compiled._result_columns
        ]

    def bind(self, parameters: dict[str, Any]) -> Any:
        """What the driver takes. Raises KeyError for a parameter that is missing."""
        values = self._constants.copy()
        for name, key, process in self._binds:
            value = parameters[key]
            values[name] = value if process is None else process(value)
        return values if self._order is None else [values[name] for name in self._order]

    def rows(self, raw: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        columns = self._columns
        return [
            {
                name: value if convert is None else convert(value)
                for (name, convert), value in zip(columns, row, strict=True)
            }
            for row in raw
        ]


@lru_cache(maxsize=1000)
def compiled(statement: Executable, dialect: Dialect, names: tuple[str, ...]) -> Compiled:
    """Kept by the identity of the statement: make it once, in a module."""
    return Compiled(statement, dialect, names)


def driver_statements(dialect: Dialect, statements: Iterable[Statement]) -> list[tuple[Compiled, Any]]:
    """Each statement with each of its sets of parameters."""
    made = []
    for statement, parameters in statements:
        sets = parameters if isinstance(parameters, list) else [parameters or {}]
        for values in sets:
            plan = compiled(statement, dialect, tuple(values))
            made.append((plan, plan.bind(values)))
    return made
