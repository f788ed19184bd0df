"""Sending a message: the hottest mutation."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import MutationResult, SendRequest
from pai_api.call import Call, accepted, document_key, document_thread
from pai_api.direct import DirectRoute
from pai_api.json_body import JsonBody
from pai_api.openapi import operation

router = APIRouter(route_class=DirectRoute, prefix="/api/pai/{agent}")
_body = JsonBody(SendRequest)


@router.post(
    "/threads/{thread_id}/send",
    dependencies=[Depends(document_thread), Depends(document_key)],
    **operation(
        "send",
        summary="Send a message",
        tag="threads",
        body=SendRequest,
        answers={
            202: ("The message is stored, and its run was created.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("thread_busy", "message_conflict", "idempotency_conflict", "queue_full", "rate_limited"),
        example={"message": {"parts": [{"type": "text", "text": "What is the capital of France?"}]}},
    ),
)
async def send(request: Request) -> Response:
    """Creates the thread on first use. The same `messageId` with the same content gets the recorded answer, always.

    A busy thread answers 409 `thread_busy` unless `queue` says how to wait.
    """
    call = await Call.of(request)
    thread_id, key, body = call.target("thread"), call.key, await _body(request)
    return accepted(await api.send(call.runtime, call.caller, thread_id, body, key=key))
