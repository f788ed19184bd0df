"""What processes print: one line for an event, with the process's name, to stderr."""

import logging
import sys

_FORMAT = "%(asctime)s {process:<6} %(levelname)-7s %(name)s: %(message)s"
# Libraries that narrate at INFO what nobody asked them.
_QUIET = ("httpx", "httpx2", "httpcore", "alembic", "celery.redirected", "kombu", "amqp", "uvicorn.access")


def log_to_stderr(process: str, *, level: str) -> None:
    """Set up logging for a process of this name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT.format(process=process), datefmt="%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.captureWarnings(True)
