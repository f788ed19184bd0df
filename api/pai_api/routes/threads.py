"""The threads of one identity and agent."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from pai.engine import api
from pai.protocol.errors import NotFound
from pai.protocol.requests import RenameRequest
from pai.protocol.state import ThreadListResult, ThreadStatus, ThreadSummary, TransportState
from pai.protocol.text import clean_text
from pai_api.call import CallDep, document_agent, document_key, document_thread, record
from pai_api.json_body import JsonBody
from pai_api.openapi import operation
from pai_api.snapshots import encode_state

router = APIRouter(prefix="/api/pai/{agent}")

RenameBody = Annotated[RenameRequest, Depends(JsonBody(RenameRequest))]
ParentQuery = Annotated[str | None, Query(alias="parentThreadId", description="Only the children of this thread.")]
CategoryQuery = Annotated[str | None, Query(description="Only threads of this category.")]
StatusQuery = Annotated[ThreadStatus | None, Query(description="Only threads in this status.")]
PageQuery = Annotated[str | None, Query(alias="pageToken", description="`nextPageToken` of the page before.")]
OtherAgentQuery = Annotated[str | None, Query(alias="agent", description="Another agent's threads; trusted only.")]
HiddenQuery = Annotated[bool | None, Query(description="Only hidden threads; for trusted callers.")]
LimitQuery = Annotated[int, Query(ge=1, le=100, description="Threads on one page.")]


@router.get(
    "/threads",
    dependencies=[Depends(document_agent)],
    **operation("listThreads", summary="List threads", tag="threads", answers={200: ("One page.", ThreadListResult)}),
)
async def list_threads(
    call: CallDep,
    parent_thread_id: ParentQuery = None,
    category: CategoryQuery = None,
    status: StatusQuery = None,
    page_token: PageQuery = None,
    limit: LimitQuery = 20,
    agent_name: OtherAgentQuery = None,
    hidden: HiddenQuery = None,
) -> Response:
    """Latest activity first. Pages stay stable while threads are added."""
    page = await api.list_threads(
        call.runtime,
        call.caller,
        parent_thread_id=None if parent_thread_id is None else clean_text(parent_thread_id),
        category=None if category is None else clean_text(category),
        status=status,
        page_token=page_token,
        limit=limit,
        agent=None if agent_name is None else clean_text(agent_name),
        hidden=hidden,
    )
    return record(page)


@router.get(
    "/threads/{thread_id}",
    dependencies=[Depends(document_thread)],
    **operation(
        "getThread",
        summary="Take a snapshot of a thread",
        tag="threads",
        answers={200: ("The snapshot, exact as of its `sequence` and `revision`.", TransportState)},
    ),
)
async def get_thread(call: CallDep) -> Response:
    """Everything there is to show, also in the middle of an answer."""
    state = await api.get_state(call.runtime, call.caller, call.existing("thread"))
    if state is None:
        raise NotFound("thread")
    return Response(encode_state(state), media_type="application/json")


@router.patch(
    "/threads/{thread_id}",
    dependencies=[Depends(document_thread), Depends(document_key)],
    **operation(
        "renameThread",
        summary="Rename a thread",
        tag="threads",
        body=RenameRequest,
        answers={200: ("The thread with its new title.", ThreadSummary)},
        problems=("idempotency_conflict",),
        example={"title": "Holiday plans"},
    ),
)
async def rename_thread(call: CallDep, body: RenameBody) -> Response:
    """A title that a user gave is never replaced by a generated one."""
    return record((await api.rename(call.runtime, call.caller, call.target("thread"), body, key=call.key)).result)


@router.delete(
    "/threads/{thread_id}",
    dependencies=[Depends(document_thread)],
    **operation(
        "deleteThread",
        summary="Delete a thread",
        tag="threads",
        answers={204: ("It is gone, or was never there.", None)},
    ),
)
async def delete_thread(call: CallDep) -> Response:
    """Everything of it goes at once: messages, runs, queued input. Work in flight is aborted.

    Deleting twice is deleting once, so an `Idempotency-Key` changes nothing here.
    """
    await api.delete(call.runtime, call.caller, call.target("thread"))
    return Response(status_code=204)
