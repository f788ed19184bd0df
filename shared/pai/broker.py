"""Celery for producing: the settings that every process shares, and the dispatch of steps.

The row in SQL is the truth and the sweep is the retry, so a dispatch is one attempt that may fail.
"""

import logging
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from celery import Celery  # type: ignore[import-untyped]
from kombu.entity import Queue

from pai.contract import Registry
from pai.log.embedded import EmbeddedRedis
from pai.settings import Settings
from pai.step_message import KEY_PREFIX, STEP_TASK, queue_key, step_message

logger = logging.getLogger(__name__)


def create_celery(settings: Settings, *, queues: Iterable[str]) -> Celery:
    """The Celery application of the API (which only produces) and of the workers."""
    url = broker_url(settings)
    app = Celery("pai", broker=url, set_as_current=False)
    redis = url.startswith("redis")
    app.conf.update(
        task_acks_late=False,
        worker_disable_prefetch=redis,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        result_backend=None,
        worker_send_task_events=False,
        task_track_started=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_soft_shutdown_timeout=0,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=5,
        task_publish_retry=False,
        task_serializer="json",
        accept_content=["json"],
        task_create_missing_queues=False,
        task_default_queue=settings.default_queue,
        # On Redis acknowledging means two more round trips for each message, to record what SQL knows.
        # `worker_disable_prefetch` limits how many a worker takes; RabbitMQ needs acknowledgements for that.
        task_queues=[Queue(name, no_ack=redis) for name in queues],  # type: ignore[no-untyped-call]
        worker_concurrency=settings.worker_concurrency,
        broker_transport_options=_redis_options() if redis else {"confirm_publish": True},
    )
    return app


def redis_url(settings: Settings) -> str:
    """The Redis of the event log: the one that is set, or the embedded one of the home folder."""
    return EmbeddedRedis(settings.home, url=settings.redis_url).url()


def broker_url(settings: Settings) -> str:
    """Celery's broker: its own, or the Redis of the event log."""
    return settings.broker_url or EmbeddedRedis(settings.home, url=settings.redis_url).broker_url


def queues_of(settings: Settings, registry: Registry) -> frozenset[str]:
    """Every queue that steps of these agents go to."""
    return registry.queues | {settings.default_queue}


def _redis_options() -> dict[str, Any]:
    return {
        "global_keyprefix": KEY_PREFIX,
        "visibility_timeout": 3600,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
    }


class Dispatcher:
    """Sends `pai.step(step_id)` from a thread of its own, because producing blocks.

    `dispatch` never waits and never fails: what is not sent is found by the sweep. `in_log`: the broker is the Redis of
    the event log.
    """

    def __init__(self, app: Celery, *, in_log: bool) -> None:
        self._app = app
        self._in_log = in_log
        self._queue: queue.SimpleQueue[Sequence[tuple[str, str]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="pai-dispatch", daemon=True)
        self._thread.start()

    def dispatch(self, steps: Sequence[tuple[str, str]]) -> None:
        """`steps`: pairs of step id and queue name."""
        if steps:
            self._queue.put(steps)

    def pushes(self, steps: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
        """The messages of steps and the lists that they go to, for the round trip of a publication.

        None where the broker is another server: then `dispatch` sends them, after the publication.
        """
        return [(queue_key(queue), step_message(step_id, queue)) for step_id, queue in steps] if self._in_log else []

    def close(self, timeout: float = 2.0) -> None:
        """Sends what was asked for, within `timeout` seconds."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _send_all(self) -> None:
        while True:
            steps = self._queue.get()
            if steps is None:
                return
            for step_id, queue_name in steps:
                self._send(step_id, queue_name)

    def _send(self, step_id: str, queue_name: str) -> None:
        try:
            self._app.send_task(STEP_TASK, args=[step_id], queue=queue_name, ignore_result=True)
        except Exception as error:
            logger.warning("Step %s was not dispatched (%s); the sweep will do it.", step_id, error)
