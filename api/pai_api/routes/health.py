"""Whether this process lives, whether it can serve, and what it counts."""

import asyncio
from collections.abc import Awaitable

from fastapi import APIRouter
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import Response

from pai.protocol.json import dumps
from pai_api.openapi import operation
from pai_api.schemas import Liveness, Readiness
from pai_api.state import ApiState

router = APIRouter()

PROBE_SECONDS = 2.0
"""How long each part has to answer."""


@router.get(
    "/healthz",
    **operation(
        "getLiveness",
        summary="Does the process live?",
        tag="operations",
        answers={200: ("It does.", Liveness)},
        problems=("internal",),
        anywhere=False,
    ),
)
async def healthz() -> Response:
    """Asks nobody else, so that a database outage never restarts healthy processes."""
    return Response(dumps({"status": "ok"}), media_type="application/json")


@router.get(
    "/readyz",
    **operation(
        "getReadiness",
        summary="Can the process serve?",
        tag="operations",
        answers={200: ("It can.", Readiness), 503: ("`parts` says what is missing.", Readiness)},
        problems=("internal",),
        anywhere=False,
    ),
)
async def readyz(request: Request) -> Response:
    """Asks SQL and Redis, each for a bounded time."""
    state = ApiState.of(request)
    sql, redis = await asyncio.gather(_answers(_ask_sql(state)), _answers(_ask_redis(state)))
    parts = {"sql": "ok" if sql else "unreachable", "redis": "ok" if redis else "unreachable"}
    ready = sql and redis
    body = {"status": "ok" if ready else "unavailable", "parts": parts}
    return Response(dumps(body), status_code=200 if ready else 503, media_type="application/json")


@router.get(
    "/metrics",
    **operation(
        "getMetrics",
        summary="Prometheus metrics",
        tag="operations",
        answers={200: ("The exposition format.", "Metrics")},
        media_type="text/plain",
        problems=("internal",),
        anywhere=False,
    ),
)
async def metrics(request: Request) -> Response:
    """Requests, latencies, watchers and events of this process."""
    found = ApiState.of(request).metrics
    return Response(found.exposition(), headers={"content-type": found.content_type})


async def _ask_sql(state: ApiState) -> None:
    async with state.runtime.store.read() as connection:
        await connection.execute(text("SELECT 1"))


async def _ask_redis(state: ApiState) -> None:
    await state.runtime.log.redis.ping()


async def _answers(question: Awaitable[None]) -> bool:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await question
    except Exception:  # whatever is wrong with it, it cannot serve
        return False
    return True
