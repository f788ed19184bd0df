"""`paictl worker`: one worker process."""

import argparse
import warnings

from pai.cli.environment import settings_of
from pai.cli.lifeline import announce_ready
from pai.cli.logs import log_to_stderr
from pai.contract import Registry


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT, which let steps go on for `PAI_DRAIN_SECONDS` and hand over the rest."""
    settings = settings_of(options)
    log_to_stderr("worker", level=settings.log_level)
    # Celery warns root of messages that execute code when they are read; these are JSON.
    warnings.filterwarnings("ignore", message=r"(?s).*superuser privileges")
    registry = Registry.load(settings.agents)
    from pai_workers.process import run_worker

    run_worker(settings, registry, on_ready=announce_ready)
    return 0
