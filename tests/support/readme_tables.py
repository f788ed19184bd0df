"""The tables of the README that are made from the code. Run it to write them: python tests/support/readme_tables.py"""

import re
from pathlib import Path

from pai.protocol import errors
from pai.protocol.errors import PaiError
from pai.settings import Settings
from pai_api import problems
from pai_api.problem_schemas import PROBLEMS

README = Path(__file__).parents[2] / "README.md"


def settings_table() -> str:
    """Every setting, as Markdown."""
    rows = [(f"`{name}`", f"`{default}`" if default else "", text) for name, default, text in Settings.table()]
    return _table(("variable", "default", "meaning"), rows)


def errors_table() -> str:
    """Every error that an HTTP answer may carry."""
    named = {**vars(problems), **vars(errors)}.values()
    classes = {value.code: value for value in named if isinstance(value, type) and issubclass(value, PaiError)}
    sent = sorted((status, code, classes[code].title) for code, (status, _) in PROBLEMS.items())
    return _table(("status", "`code`", "meaning"), [(str(status), f"`{code}`", title) for status, code, title in sent])


def with_tables(text: str) -> str:
    """The README with its tables as they should be."""
    for name, table in (("errors", errors_table()), ("settings", settings_table())):
        begin, end = rf"(<!-- {name}:[^>]*-->\n)", rf"(<!-- /{name} -->)"
        text, found = re.subn(
            f"{begin}.*?{end}", lambda match, table=table: match[1] + table + match[2], text, flags=re.DOTALL
        )
        if found != 1:
            raise ValueError(f"the README has no place for {name}")
    return text


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |\n"

    return "\n" + line(head) + line(tuple("-" * width for width in widths)) + "".join(map(line, rows)) + "\n"


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
