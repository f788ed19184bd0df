"""Commands: typed calls on a thread that the agent declares."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import CommandRequest, CommandResult
from pai_api.call import CallDep, document_key, document_thread, record
from pai_api.json_body import JsonBody
from pai_api.openapi import operation

router = APIRouter(prefix="/api/pai/{agent}", dependencies=[Depends(document_key), Depends(document_thread)])

CommandBody = Annotated[CommandRequest, Depends(JsonBody(CommandRequest, optional=True))]


@router.post(
    "/threads/{thread_id}/commands/{name}",
    **operation(
        "executeCommand",
        summary="Call a command on a thread",
        tag="threads",
        body=CommandRequest,
        body_required=False,
        answers={200: ("What the command returned.", CommandResult)},
        problems=("idempotency_conflict",),
        example={"input": {"reason": "done"}},
    ),
)
async def execute(
    call: CallDep, body: CommandBody, name: Annotated[str, Path(description="The command's name.")]
) -> Response:
    """Input and output are those of the manifest."""
    thread_id = call.target("thread")
    return record((await api.execute_command(call.runtime, call.caller, thread_id, name, body, key=call.key)).result)
