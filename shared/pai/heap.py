"""The garbage collector of a process that serves for days."""

import gc

LOT = 20_000
"""How many new objects gather until they are looked through. A request makes thousands, and nearly all of them go by
themselves; with Python's 700 the collector costs a busy worker several percent."""


def keep_what_started() -> None:
    """What was imported and declared stays until the process ends, so it is not looked through again."""
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(LOT, *older)
