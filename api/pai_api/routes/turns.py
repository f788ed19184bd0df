"""Taking turns back: regenerate from an input, recall what is still queued."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import MutationResult, RegenerateRequest
from pai_api.call import CallDep, accepted, document_key, document_thread
from pai_api.json_body import JsonBody
from pai_api.openapi import operation

router = APIRouter(prefix="/api/pai/{agent}", dependencies=[Depends(document_key), Depends(document_thread)])

RegenerateBody = Annotated[RegenerateRequest, Depends(JsonBody(RegenerateRequest))]


async def document_item(queue_item_id: Annotated[str, Path(description="The queued item's id.")]) -> None:
    """Parameters that the call reads, for the document."""


@router.post(
    "/threads/{thread_id}/regenerate",
    **operation(
        "regenerate",
        summary="Run again from a message or a run",
        tag="threads",
        body=RegenerateRequest,
        answers={
            202: ("A new run started; everything after its input is gone.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("thread_busy", "regenerate_invalid", "idempotency_conflict"),
        example={
            "messageId": "msg_1",
            "replacement": {"parts": [{"type": "text", "text": "Be brief."}]},
        },
    ),
)
async def regenerate(call: CallDep, body: RegenerateBody) -> Response:
    """Give `messageId` (with an optional `replacement` of its content) or `runId`."""
    return accepted(await api.regenerate(call.runtime, call.caller, call.target("thread"), body, key=call.key))


@router.delete(
    "/threads/{thread_id}/queue/{queue_item_id}",
    dependencies=[Depends(document_item)],
    **operation(
        "recallQueuedItem",
        summary="Take queued input back",
        tag="threads",
        answers={
            202: ("Recalled; `cancelled` holds the input.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("queue_item_admitted", "idempotency_conflict"),
    ),
)
async def recall(call: CallDep) -> Response:
    """Its run is cancelled and leaves no trace in the transcript."""
    thread_id, item_id = call.target("thread"), call.target("queue_item")
    return accepted(await api.recall(call.runtime, call.caller, thread_id, item_id, key=call.key))
