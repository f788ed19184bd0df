"""A process that serves does not look through what it started with again and again."""

import subprocess
import sys

from pai.heap import LOT

PROGRAM = """
import gc
import pai.contract
from pai.heap import keep_what_started
before = gc.get_threshold()
keep_what_started()
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 1_000, len(gc.get_objects())
assert gc.isenabled() and gc.get_threshold()[1:] == before[1:]
print(gc.get_threshold()[0])
"""


def test_what_was_imported_is_kept_and_new_objects_are_looked_through_in_lots() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) == LOT
