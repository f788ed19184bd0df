"""Stopping what runs. The thread is free when the answer arrives."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import MutationResult, StopRunRequest, StopThreadRequest
from pai_api.call import CallDep, accepted, document_key, document_run, document_thread
from pai_api.json_body import JsonBody
from pai_api.openapi import operation

router = APIRouter(prefix="/api/pai/{agent}", dependencies=[Depends(document_key)])

StopThreadBody = Annotated[StopThreadRequest, Depends(JsonBody(StopThreadRequest, optional=True))]
StopRunBody = Annotated[StopRunRequest, Depends(JsonBody(StopRunRequest, optional=True))]


@router.post(
    "/threads/{thread_id}/stop",
    dependencies=[Depends(document_thread)],
    **operation(
        "stopThread",
        summary="Stop the active run and decide about the queue",
        tag="threads",
        body=StopThreadRequest,
        body_required=False,
        answers={
            202: ("Stopped. `cancelled` holds the queued inputs that were dropped.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("idempotency_conflict",),
        example={"reason": "Not what I meant", "continueWith": "none"},
    ),
)
async def stop_thread(call: CallDep, body: StopThreadBody) -> Response:
    """`continueWith` says which queued inputs go on: `none`, `steer` or `all`."""
    return accepted(await api.stop_thread(call.runtime, call.caller, call.target("thread"), body, key=call.key))


@router.post(
    "/threads/{thread_id}/runs/{run_id}/stop",
    dependencies=[Depends(document_thread), Depends(document_run)],
    **operation(
        "stopRun",
        summary="Stop one running or waiting run",
        tag="runs",
        body=StopRunRequest,
        body_required=False,
        answers={
            202: ("Stopped; the queue proceeds.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("run_not_active", "idempotency_conflict"),
        example={"reason": "Not what I meant"},
    ),
)
async def stop_run(call: CallDep, body: StopRunBody) -> Response:
    """A queued run answers 409 `run_not_active`: recall it instead."""
    thread_id, run_id = call.target("thread"), call.target("run")
    return accepted(await api.stop_run(call.runtime, call.caller, thread_id, run_id, body, key=call.key))
