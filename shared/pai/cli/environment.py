"""Options of the command line become the variables that settings are read from, for this process and its children."""

import argparse
import os
from traceback import walk_tb

from pydantic import ValidationError

from pai.protocol.errors import PaiError, Unavailable
from pai.protocol.field_errors import field_message
from pai.settings import Settings

_VARIABLES = {
    "agents": "PAI_AGENTS",
    "host": "PAI_HOST",
    "port": "PAI_PORT",
    "queues": "PAI_QUEUES",
    "concurrency": "PAI_WORKER_CONCURRENCY",
}


_PACKAGES = ("pai", "pai_api", "pai_workers")


def told(error: PaiError) -> str:
    """The error in one line; of a database that is away also what its driver says, which names no password."""
    driver = getattr(error.__cause__, "orig", None)
    if not isinstance(error, Unavailable) or driver is None:
        return error.detail
    reason = (str(driver).splitlines() or [type(driver).__name__])[0].rstrip(".")
    return f"{error.detail.rstrip('.')}: {reason}. Start it, or correct PAI_DATABASE_URL."


def left_out(error: ModuleNotFoundError) -> str | None:
    """What to install, when it is PAI that imports what is not there: a part was installed without its extra."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    importer = next((name for name in reversed(frames) if not name.startswith("importlib.")), "")
    if importer.partition(".")[0] not in _PACKAGES or (error.name or "").partition(".")[0] in _PACKAGES:
        return None
    return f"{error.name} is not installed here. Install pai-backend[all], or the extra of this part."


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of this process; an option wins over its variable. Raises PaiError naming the wrong variables."""
    for name, variable in _VARIABLES.items():
        value = getattr(options, name, None)
        if value is not None:
            os.environ[variable] = str(value)
    return read_settings()


def read_settings() -> Settings:
    """Raises PaiError that names the variables that are wrong."""
    try:
        return Settings()
    except ValidationError as error:
        # A default that is made of other settings has no fault of its own.
        faults = [fault for fault in error.errors() if fault["type"] != "default_factory_not_called"]
        wrong = "; ".join(f"{_variable(fault['loc'])}: {field_message(fault)}" for fault in faults)
        raise PaiError(f"These settings are wrong: {wrong}.") from None


def _variable(location: tuple[int | str, ...]) -> str:
    name = str(location[0]).upper() if location else "PAI_*"
    return name if name.startswith("PAI_") else f"PAI_{name}"
