"""What operators see: Prometheus metrics of one application, in a registry of its own."""

from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pai_http_requests", "Answers by operation and status", ["operation", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "pai_http_seconds",
            "Seconds until the answer began, by operation",
            ["operation"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.watchers = Gauge("pai_watchers", "Open watches by kind", ["kind"], registry=self.registry)
        self.events = Counter("pai_watch_events", "Events sent to watchers", registry=self.registry)
        self.resets = Counter(
            "pai_watch_resets", "Resets sent to watchers, by reason", ["reason"], registry=self.registry
        )
        self.publish_failures = Gauge(
            "pai_publish_failures", "Publications of this process that failed", registry=self.registry
        )
        self.log_connected = Gauge("pai_log_connected", "Whether live events arrive", registry=self.registry)
        self.snapshots = Counter("pai_watch_snapshots", "Snapshots sent to watchers", registry=self.registry)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class Observed:
    """Counts and times every answer. The time ends where the answer begins: a watch goes on for hours."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Only the router's own names become labels: a stranger's path must not make a time series.
                operation = getattr(scope.get("route"), "name", None) or "none"
                self._metrics.requests.labels(operation, message["status"]).inc()
                self._metrics.seconds.labels(operation).observe(perf_counter() - started)
            await send(message)

        await self._app(scope, receive, observed)
