"""The application: `create_app` for programs, `create` for `uvicorn --factory pai_api.app:create`."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from pai.contract.registry import Registry
from pai.engine import api
from pai.engine.publication import reopen_if_lost
from pai.engine.runtime import Runtime
from pai.heap import keep_what_started
from pai.log.hub import Hub
from pai.log.rates import Rates
from pai.protocol.errors import Unavailable
from pai.settings import Settings
from pai.store.errors import SchemaOutdated
from pai.store.schema import check_schema
from pai_api.drain import Drain
from pai_api.faults import Faults
from pai_api.identity import gate
from pai_api.metrics import Metrics, Observed
from pai_api.openapi import document
from pai_api.problems import HANDLERS
from pai_api.routes import ROUTERS
from pai_api.state import ApiState

_TAGS = [
    {"name": "agents", "description": "Which agents there are, and what each one is."},
    {"name": "threads", "description": "Conversations of one identity with one agent."},
    {"name": "runs", "description": "Turns of a conversation."},
    {"name": "files", "description": "What people attach to messages, and what models make."},
    {"name": "watch", "description": "Server-sent events."},
    {"name": "trusted", "description": "For trusted callers only; everybody else gets 403."},
    {"name": "operations", "description": "Health and metrics."},
]
_EXPOSED_HEADERS = ("accept-ranges", "content-disposition", "content-range", "etag", "retry-after")

logger = logging.getLogger(__name__)


def create() -> FastAPI:
    """From the environment: settings with the prefix `PAI_`, agents from `PAI_AGENTS`."""
    settings = Settings()
    app = create_app(settings, Registry.load(settings.agents))
    keep_what_started()
    return app


def create_app(settings: Settings, registry: Registry) -> FastAPI:
    """Nothing is opened before the lifespan starts, and everything is closed when it ends.

    Raises DeclarationError for settings that cannot be served, such as anonymous callers on a public address.
    """
    passing = gate(settings)
    metrics, drain = Metrics(), Drain()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(Runtime.open(settings, registry))
            await _refuse_an_older_schema(runtime)
            hub = await stack.enter_async_context(
                Hub(
                    runtime.log,
                    revisions=partial(api.revisions, runtime),
                    reopen=partial(reopen_if_lost, runtime.log, runtime.store),
                    check_every=settings.check_interval,
                    max_count=settings.watcher_buffer,
                )
            )
            metrics.publish_failures.set_function(lambda: runtime.announcer.failures)
            metrics.log_connected.set_function(lambda: hub.connected)
            rates = Rates(
                runtime.log.redis, per_second=settings.max_requests_per_second, burst=settings.max_request_burst
            )
            app.state.pai = ApiState(
                runtime=runtime,
                hub=hub,
                gate=passing,
                rates=rates,
                settings=settings,
                metrics=metrics,
                drain=drain,
            )
            stack.callback(drain.start)
            stack.enter_context(drain.on_signals())
            yield

    app = FastAPI(
        title="PAI",
        version="1",
        description="Durable agent conversations. Errors are `application/problem+json` with a stable `code`.",
        lifespan=lifespan,
        openapi_tags=_TAGS,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        exception_handlers=HANDLERS,
        middleware=_middleware(settings, metrics),
    )
    app.state.settings = settings
    for router in ROUTERS:
        # Not `include_router`, whose late binding of prefixes costs every request a second round of matching.
        app.router.routes.extend(router.routes)
    _describe(app)
    return app


async def _refuse_an_older_schema(runtime: Runtime) -> None:
    """Raises SchemaOutdated. A database that is away is no reason not to start: readiness says so."""
    try:
        await check_schema(runtime.store)
    except SchemaOutdated:
        raise
    except Unavailable as error:
        logger.warning("The schema could not be checked: %s", error)


def _middleware(settings: Settings, metrics: Metrics) -> list[Middleware]:
    layers = [Middleware(Observed, metrics=metrics)]
    if settings.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST", "PATCH", "DELETE"],
                allow_headers=["*"],
                expose_headers=_EXPOSED_HEADERS,
                allow_credentials="*" not in settings.cors_origins,
                max_age=600,
            )
        )
    # Innermost, so that a bug's answer has the headers of every other answer.
    layers.append(Middleware(Faults))
    return layers


def _describe(app: FastAPI) -> None:
    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to replace the document
