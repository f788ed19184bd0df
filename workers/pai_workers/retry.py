"""When a failed model call is tried again."""

import random
from datetime import timedelta

from pai.models import ModelError
from pai.settings import Settings
from pai.store.tables import Step

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(seconds=60)


def retry_delay(error: ModelError, step: Step, *, settings: Settings, now: int) -> timedelta | None:
    """How long to wait before the next attempt; None when the run fails.

    Rate limits and overload honour what the provider asks for and spend the step's deadline, from its first start;
    other errors that may pass spend its tries. `now` is in milliseconds by the database's clock, as the start is.
    """
    if not error.retryable:
        return None
    # A put-back and the claim after it raise the fence by two.
    delay = backoff(step.attempt // 2)
    if error.waits:
        delay = max(delay, error.retry_after or timedelta())
        started = step.first_started_at or now
        left = timedelta(milliseconds=started - now) + settings.model_deadline
        return delay if delay < left else None
    return delay if step.tries + 1 < settings.model_tries else None


def backoff(tries: int) -> timedelta:
    """Doubles with every try that was spent, up to a minute, and is jittered."""
    exact: timedelta = min(FIRST_DELAY * 2**tries, LONGEST_DELAY)
    return exact * random.uniform(0.5, 1.0)
