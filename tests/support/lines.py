"""Which tests run one after the other when several processes share the work."""

from pathlib import PurePosixPath


def line_of(nodeid: str) -> str:
    """Tests with the same line run in one process, in order; most tests are a line of their own.

    Those of a file that talk to one server share it. Of those that mostly wait for processes, two lines are enough.
    """
    file = PurePosixPath(nodeid.partition("::")[0])
    if "chaos" in file.parts:
        return f"chaos-{len(file.stem) % 2}"
    return str(file) if "e2e" in file.parts or file.stem.endswith("_end_to_end") else nodeid
