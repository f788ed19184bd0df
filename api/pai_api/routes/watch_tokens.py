"""Tokens for browsers, whose EventSource cannot send headers."""

from fastapi import APIRouter, Depends
from starlette.responses import Response

from pai.protocol.times import iso
from pai_api.call import CallDep, document_agent, document_thread, record
from pai_api.openapi import operation
from pai_api.schemas import WatchToken

router = APIRouter(prefix="/api/pai/{agent}")

_ANSWERS = {200: ("The token, and until when it opens watches.", WatchToken)}


@router.post(
    "/threads/{thread_id}/watch-token",
    dependencies=[Depends(document_thread)],
    **operation("createWatchToken", summary="Get a token to watch a thread", tag="watch", answers=_ANSWERS),
)
async def create_watch_token(call: CallDep) -> Response:
    """For `GET /threads/{id}/watch?token=...`, and nothing else. The thread need not exist yet."""
    return await _token(call, call.target("thread"))


@router.post(
    "/heads/watch-token",
    dependencies=[Depends(document_agent)],
    **operation("createHeadsWatchToken", summary="Get a token to watch the list", tag="watch", answers=_ANSWERS),
)
async def create_heads_watch_token(call: CallDep) -> Response:
    """For `GET /heads/watch?token=...`, and nothing else."""
    return await _token(call, None)


async def _token(call: CallDep, thread_id: str | None) -> Response:
    token, opens_until = await call.state.gate.watch_token(call.request, call.runtime, call.caller, thread_id=thread_id)
    answer = record(WatchToken(token=token, expires_at=iso(int(opens_until * 1000))))
    answer.headers["cache-control"] = "no-store"
    return answer
