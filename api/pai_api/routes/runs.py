"""Reading runs."""

from fastapi import APIRouter, Depends
from starlette.responses import Response

from pai.engine import api
from pai.protocol.state import RunState
from pai_api.call import CallDep, document_run, document_thread, record
from pai_api.openapi import operation

router = APIRouter(prefix="/api/pai/{agent}")


@router.get(
    "/threads/{thread_id}/runs/{run_id}",
    dependencies=[Depends(document_thread), Depends(document_run)],
    **operation("getRun", summary="Read a run", tag="runs", answers={200: ("The run.", RunState)}),
)
async def get_run(call: CallDep) -> Response:
    """The run as it is now."""
    return record(await api.get_run(call.runtime, call.caller, call.existing("thread"), call.existing("run")))
