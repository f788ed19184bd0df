"""What only trusted callers reach: messages and metadata with their private side, across owners, and triggers."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from pai.engine import api
from pai.protocol.requests import MutationResult, TriggerRequest
from pai.protocol.state import ThreadListResult
from pai.protocol.text import clean_text
from pai.protocol.trusted import (
    AppendMessageRequest,
    LifecycleMessage,
    LifecycleMessages,
    LookUpMessagesRequest,
    MetadataRecord,
    MetadataRequest,
    VisibilityRequest,
)
from pai_api.call import (
    CallDep,
    accepted,
    document_agent,
    document_key,
    document_owner,
    document_run,
    document_thread,
    owner_named,
    record,
)
from pai_api.json_body import JsonBody
from pai_api.openapi import operation
from pai_api.routes.threads import CategoryQuery, LimitQuery, PageQuery, ParentQuery, StatusQuery
from pai_api.state import ApiState

router = APIRouter(prefix="/api/pai")

AppendBody = Annotated[AppendMessageRequest, Depends(JsonBody(AppendMessageRequest))]
LookUpBody = Annotated[LookUpMessagesRequest, Depends(JsonBody(LookUpMessagesRequest))]
VisibilityBody = Annotated[VisibilityRequest, Depends(JsonBody(VisibilityRequest))]
MetadataBody = Annotated[MetadataRequest, Depends(JsonBody(MetadataRequest))]
TriggerBody = Annotated[TriggerRequest, Depends(JsonBody(TriggerRequest, optional=True))]
AgentQuery = Annotated[str | None, Query(description="Only threads of this agent.")]
HiddenQuery = Annotated[bool | None, Query(description="Only hidden threads, or only the others. Default: both.")]

_OF_THREAD = [Depends(document_key), Depends(document_thread)]
_OF_RUN = [*_OF_THREAD, Depends(document_run)]


@router.get(
    "/threads",
    dependencies=[Depends(document_owner)],
    **operation(
        "listAllThreads",
        summary="List threads across agents and owners",
        tag="trusted",
        answers={200: ("One page.", ThreadListResult)},
    ),
)
async def list_all_threads(
    request: Request,
    agent: AgentQuery = None,
    hidden: HiddenQuery = None,
    parent_thread_id: ParentQuery = None,
    category: CategoryQuery = None,
    status: StatusQuery = None,
    page_token: PageQuery = None,
    limit: LimitQuery = 20,
) -> Response:
    """Latest activity first, hidden threads included. With `X-Pai-Owner` only those of that owner."""
    state = ApiState.of(request)
    identity = await state.admit(request)
    page = await api.list_all_threads(
        state.runtime,
        identity,
        owner=owner_named(request, identity),
        agent=None if agent is None else clean_text(agent),
        hidden=hidden,
        parent_thread_id=None if parent_thread_id is None else clean_text(parent_thread_id),
        category=None if category is None else clean_text(category),
        status=status,
        page_token=page_token,
        limit=limit,
    )
    return record(page)


@router.post(
    "/{agent}/threads/{thread_id}/messages",
    dependencies=_OF_THREAD,
    **operation(
        "appendMessage",
        summary="Add a message without a run",
        tag="trusted",
        body=AppendMessageRequest,
        answers={
            201: ("The message.", LifecycleMessage),
            200: ("The recorded answer of the same request.", LifecycleMessage),
        },
        problems=("message_conflict", "idempotency_conflict"),
        example={
            "message": {"role": "system", "parts": [{"type": "text", "text": "The order was shipped."}]},
            "visibility": "model",
        },
    ),
)
async def append_message(call: CallDep, body: AppendBody) -> Response:
    """At the end of the thread. While a run works it stands before the run's next step. Nothing is started."""
    reply = await api.append_message(call.runtime, call.caller, call.target("thread"), body, key=call.key)
    return record(reply.result, status=200 if reply.replayed else 201)


@router.post(
    "/{agent}/threads/{thread_id}/messages/lookup",
    dependencies=_OF_THREAD,
    **operation(
        "lookUpMessages",
        summary="Read messages by id",
        tag="trusted",
        body=LookUpMessagesRequest,
        answers={200: ("Those that exist, in the order of the request.", LifecycleMessages)},
        example={"messageIds": ["msg_1"]},
    ),
)
async def look_up_messages(call: CallDep, body: LookUpBody) -> Response:
    """With visibility and private metadata, whoever sees them. It changes nothing, so it needs no key."""
    return record(await api.get_messages(call.runtime, call.caller, call.existing("thread"), body))


@router.patch(
    "/{agent}/threads/{thread_id}/messages/visibility",
    dependencies=_OF_THREAD,
    **operation(
        "setVisibility",
        summary="Say who sees messages",
        tag="trusted",
        body=VisibilityRequest,
        answers={
            202: ("Done; watchers see messages go or come.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
        },
        problems=("thread_busy", "idempotency_conflict"),
        example={"messageIds": ["msg_1"], "visibility": "model"},
    ),
)
async def set_visibility(call: CallDep, body: VisibilityBody) -> Response:
    """`all`, `ui`, `model` or `none`. A message that is still open answers 409 `thread_busy`."""
    return accepted(await api.set_visibility(call.runtime, call.caller, call.target("thread"), body, key=call.key))


@router.get(
    "/{agent}/threads/{thread_id}/metadata",
    dependencies=[Depends(document_thread)],
    **operation(
        "getMetadata",
        summary="Read a thread's metadata",
        tag="trusted",
        answers={200: ("Public and private.", MetadataRecord)},
    ),
)
async def get_metadata(call: CallDep) -> Response:
    """What the owner sees, and what only trusted code sees."""
    return record(await api.read_metadata(call.runtime, call.caller, call.existing("thread")))


@router.patch(
    "/{agent}/threads/{thread_id}/metadata",
    dependencies=_OF_THREAD,
    **operation(
        "changeMetadata",
        summary="Change a thread's metadata",
        tag="trusted",
        body=MetadataRequest,
        answers={200: ("Public and private, as they are now.", MetadataRecord)},
        problems=("idempotency_conflict",),
        example={"metadata": {"archived": True}, "privateMetadata": {"caseNumber": 7}},
    ),
)
async def change_metadata(call: CallDep, body: MetadataBody) -> Response:
    """Sets the keys that are given. The whole record must fit the declared type."""
    reply = await api.change_metadata(call.runtime, call.caller, call.target("thread"), body, key=call.key)
    return record(reply.result)


@router.get(
    "/{agent}/threads/{thread_id}/runs/{run_id}/metadata",
    dependencies=[Depends(document_thread), Depends(document_run)],
    **operation(
        "getRunMetadata",
        summary="Read a run's metadata",
        tag="trusted",
        answers={200: ("Public and private.", MetadataRecord)},
    ),
)
async def get_run_metadata(call: CallDep) -> Response:
    """What the owner sees, and what only trusted code sees."""
    thread_id, run_id = call.existing("thread"), call.existing("run")
    return record(await api.read_metadata(call.runtime, call.caller, thread_id, run_id=run_id))


@router.patch(
    "/{agent}/threads/{thread_id}/runs/{run_id}/metadata",
    dependencies=_OF_RUN,
    **operation(
        "changeRunMetadata",
        summary="Change a run's metadata",
        tag="trusted",
        body=MetadataRequest,
        answers={200: ("Public and private, as they are now.", MetadataRecord)},
        problems=("idempotency_conflict",),
        example={"privateMetadata": {"reviewed": True}},
    ),
)
async def change_run_metadata(call: CallDep, body: MetadataBody) -> Response:
    """Sets the keys that are given. The whole record must fit the declared type."""
    thread_id, run_id = call.target("thread"), call.target("run")
    reply = await api.change_metadata(call.runtime, call.caller, thread_id, body, run_id=run_id, key=call.key)
    return record(reply.result)


@router.post(
    "/{agent}/triggers/{name}",
    dependencies=[Depends(document_key), Depends(document_agent)],
    **operation(
        "fireTrigger",
        summary="Fire a trigger",
        tag="trusted",
        body=TriggerRequest,
        body_required=False,
        answers={
            202: ("Its run was created, or waits for its turn.", MutationResult),
            200: ("The recorded answer of the same request.", MutationResult),
            204: ("The trigger had nothing to send.", None),
        },
        problems=("idempotency_conflict", "queue_full"),
        example={"input": {"orderId": "o1"}, "threadId": "t1"},
    ),
)
async def fire_trigger(
    call: CallDep, body: TriggerBody, name: Annotated[str, Path(description="The trigger's name.")]
) -> Response:
    """One that is declared with `on_call`. It acts for `X-Pai-Owner`, or for the owner that it declares."""
    reply = await api.fire_trigger(call.runtime, call.caller, name, body, key=call.key)
    if reply.result is None:
        return Response(status_code=204)
    return record(reply.result, status=200 if reply.replayed else 202)
