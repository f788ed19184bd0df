"""What a waiting tool call needs from outside: the answer to an action, and data that a client may write."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import ActionRequest, MutationResult, ToolDataRequest
from pai_api.call import CallDep, accepted, document_key, document_thread
from pai_api.json_body import JsonBody
from pai_api.openapi import operation

router = APIRouter(prefix="/api/pai/{agent}", dependencies=[Depends(document_key), Depends(document_thread)])

ActionBody = Annotated[ActionRequest, Depends(JsonBody(ActionRequest))]
ToolDataBody = Annotated[ToolDataRequest, Depends(JsonBody(ToolDataRequest))]

_REF = {
    "kind": "tool",
    "threadId": "t1",
    "toolName": "publish_post",
    "suspendName": "approval",
    "messageId": "msg_1",
    "toolCallId": "call_1",
    "runId": "run_1",
    "actionId": "susp_1",
    "name": "publish_post.approval",
}


@router.post(
    "/threads/{thread_id}/actions",
    **operation(
        "respondToAction",
        summary="Answer a pending action",
        tag="threads",
        body=ActionRequest,
        answers={
            202: ("Answered; `run` is the run that goes on.", MutationResult),
            200: ("The recorded answer of the same `responseId` or Idempotency-Key.", MutationResult),
        },
        problems=("action_not_pending", "idempotency_conflict"),
        example={"ref": _REF, "response": {"type": "submit", "payload": {"approved": True}}},
    ),
)
async def respond(call: CallDep, body: ActionBody) -> Response:
    """The first answer wins. A payload that is not valid answers 422 and leaves the action pending."""
    return accepted(await api.respond(call.runtime, call.caller, call.target("thread"), body, key=call.key))


@router.post(
    "/threads/{thread_id}/tool-data",
    **operation(
        "writeToolData",
        summary="Write tool data of an open call",
        tag="threads",
        body=ToolDataRequest,
        answers={
            202: ("Written.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("call_settled", "idempotency_conflict"),
        example={"messageId": "msg_1", "toolCallId": "call_1", "name": "progress", "value": {"percent": 40}},
    ),
)
async def write_tool_data(call: CallDep, body: ToolDataBody) -> Response:
    """Only for data that the tool declares as writable by clients; the latest value counts."""
    return accepted(await api.write_tool_data(call.runtime, call.caller, call.target("thread"), body, key=call.key))
