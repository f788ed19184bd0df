"""What processes print: one line for an event, with the process's name, to stderr."""

import io
import logging
import sys

_FORMAT = "%(asctime)s {process:<6} %(levelname)-7s %(name)s: %(message)s"
# Libraries that narrate at INFO what nobody asked them.
_QUIET = ("httpx", "httpx2", "httpcore", "alembic", "kombu", "amqp", "uvicorn.access")


def log_to_stderr(process: str, *, level: str) -> None:
    """Set up logging for a process of this name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT.format(process=process), datefmt="%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.captureWarnings(True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What an application prints is to be seen when it prints it, also in a file.
        sys.stdout.reconfigure(line_buffering=True)
