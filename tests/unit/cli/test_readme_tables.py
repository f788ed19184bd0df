"""The README's tables are those of the code."""

from collections.abc import Iterator

import pai_api.app  # noqa: F401 - with every error that it may answer
from pai.protocol.errors import PaiError
from pai_api.problem_schemas import PROBLEMS
from support.readme_tables import README, errors_table, with_tables


def test_the_readme_lists_the_settings_and_errors_that_there_are() -> None:
    text = README.read_text()
    assert text == with_tables(text), "run: .venv/bin/python tests/support/readme_tables.py"


def test_every_code_that_the_api_can_answer_is_in_the_table() -> None:
    table = errors_table()
    answered = {(cls.status, cls.code) for cls in _all(PaiError) if cls.code != PaiError.code}
    assert (405, "method_not_allowed") in answered
    for status, code in answered:
        if status != PaiError.status:  # those are bugs, and answered as `internal`
            assert PROBLEMS[code][0] == status, code
    for code, (status, _) in PROBLEMS.items():
        assert f"| {status}    | `{code}`" in table


def _all(root: type[PaiError]) -> Iterator[type[PaiError]]:
    yield root
    for cls in root.__subclasses__():
        yield from _all(cls)
