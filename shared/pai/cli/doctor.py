"""`paictl doctor`: checks what PAI needs, one line each, and says what to do about what is missing."""

import argparse
import sys
from collections.abc import Callable, Iterator

from pai.cli.checks import (
    Finding,
    Level,
    agents,
    broker,
    database,
    environment,
    files,
    identity,
    model_keys,
    port,
    redis,
    safety,
)
from pai.cli.environment import left_out, settings_of
from pai.cli.screen import Screen, Style
from pai.protocol.errors import PaiError
from pai.settings import Settings

Check = Callable[[Settings], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (environment, agents, model_keys, database, redis, broker, files, port, identity, safety)
_STYLES = {Level.good: Style.green, Level.note: Style.yellow, Level.bad: Style.red}


def run(options: argparse.Namespace) -> int:
    """Exit code 1 when something is missing without which PAI does not work."""
    screen = Screen(sys.stdout)
    symbols = {
        Level.good: screen.symbol("✓", "ok"),
        Level.note: screen.symbol("•", "--"),
        Level.bad: screen.symbol("✗", "!!"),
    }
    try:
        settings = settings_of(options)
    except PaiError as error:
        screen.line(f"{symbols[Level.bad]} settings  {error.detail}", Style.red)
        return 1
    bad = 0
    for check in CHECKS:
        for finding in _found(check, settings):
            bad += finding.level is Level.bad
            screen.line(f"{symbols[finding.level]} {finding.what:<9} {finding.said}", _STYLES[finding.level])
            if finding.todo:
                screen.line(f"  {'':<9} -> {finding.todo}")
    screen.line()
    screen.line("All is well." if not bad else f"{bad} to mend.", Style.bold)
    return 1 if bad else 0


def _found(check: Check, settings: Settings) -> Iterator[Finding]:
    try:
        yield from check(settings)
    except ModuleNotFoundError as error:
        if (missing := left_out(error)) is None:
            raise
        yield Finding(Level.bad, check.__name__, missing)
