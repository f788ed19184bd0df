"""What operators see of a worker: Prometheus metrics of one process, in a registry of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from pai.protocol.errors import PaiError

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)


class Outcome(StrEnum):
    """How an execution of a step ended in this process."""

    done = "done"
    failed = "failed"
    """With an error that the thread has: of the tool, of the model, of the hook."""
    retried = "retried"
    suspended = "suspended"
    lost = "lost"
    """It was stopped, taken over, or past its deadline: nothing was committed here."""
    broken = "broken"
    """The database was away, or the worker has a bug: the lease runs out."""


class MetricsPortUnusable(PaiError):
    """Another process listens there, or this host has no such address."""

    title = "The address for the metrics cannot be listened on"


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.steps = Counter(
            "pai_steps",
            "Executions of steps that ended, by kind and outcome",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "pai_step_seconds",
            "Seconds that an execution of a step took, by kind",
            ["kind"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.running = Gauge("pai_steps_running", "Steps under way", registry=self.registry)
        self.slots = Gauge("pai_worker_slots", "Steps that may be under way at once", registry=self.registry)
        self.takeovers = Counter(
            "pai_takeovers", "Steps of others whose lease had run out, taken over here", registry=self.registry
        )
        self.redispatches = Counter(
            "pai_redispatches", "Steps that nobody had claimed in time, dispatched again here", registry=self.registry
        )
        self.leases_lost = Counter(
            "pai_leases_lost",
            "Steps that a renewal showed to be somebody else's, settled or past their deadline",
            registry=self.registry,
        )
        self.renewal_failures = Counter(
            "pai_lease_renewal_failures", "Renewals that the database did not answer", registry=self.registry
        )
        self.fires = Counter(
            "pai_trigger_fires", "Fires of schedules that ended here, by outcome", ["outcome"], registry=self.registry
        )

    def watch(self, *, running: Callable[[], int], slots: int) -> None:
        """Say where the number of steps under way is read, and how many there may be."""
        self.running.set_function(running)
        self.slots.set(slots)

    @contextmanager
    def served(self, host: str, port: int | None) -> Iterator[None]:
        """Answers `/metrics` there, in a thread of its own; nowhere without a port. Raises MetricsPortUnusable."""
        if port is None:
            yield
            return
        try:
            server, thread = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise MetricsPortUnusable(
                f"PAI_WORKER_METRICS_PORT={port} on {host} cannot be listened on ({error.strerror or error}). "
                "Each worker process of a host needs a port of its own."
            ) from error
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
