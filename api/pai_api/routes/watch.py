"""Watching a thread."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pai.engine import api
from pai.protocol.errors import ValidationFailed
from pai_api.call import Call, document_thread, document_token, document_watch
from pai_api.direct import DirectRoute
from pai_api.event_stream import MEDIA_TYPE, EventStream
from pai_api.openapi import operation
from pai_api.watch import Bookmark, ThreadWatch

router = APIRouter(route_class=DirectRoute, prefix="/api/pai/{agent}")

_FLAGS = {"1": True, "true": True, "0": False, "false": False, "": False}


@router.get(
    "/threads/{thread_id}/watch",
    dependencies=[Depends(document_thread), Depends(document_watch), Depends(document_token)],
    **operation(
        "watchThread",
        summary="Watch a thread",
        tag="watch",
        answers={200: ("Server-sent events; the data of each is one JSON object.", "WatchEvent")},
        media_type=MEDIA_TYPE,
    ),
)
async def watch_thread(request: Request) -> Response:
    """Each event is `id: {version}:{sequence}` and `data:` one `WatchEvent`; there is no `event:` field.

    First comes `ready`, at once and without an id: the position that the stream continues from. `Last-Event-ID` beats
    `after`; without either the stream begins now. A position that is gone gets `reset`: take a snapshot. With
    `snapshot=1` a `snapshot` comes instead of every `reset`, and at the start when no position was given. A thread that
    does not exist yet may be watched: `ready` has the version null, and events come once it is created. After `deleted`
    the watch waits for the thread to be created again. A comment keeps a quiet stream open.
    """
    call, access = await Call.of_watch(request, thread_id=request.path_params["thread_id"])
    thread_id = call.existing("thread")
    snapshots = _FLAGS.get(request.query_params.get("snapshot", "").lower())
    if snapshots is None:
        raise ValidationFailed.at("snapshot", "must be 1 or 0")
    position = request.headers.get("last-event-id") or request.query_params.get("after")
    watch = ThreadWatch(
        call.state,
        call.caller,
        thread_id,
        bookmark=Bookmark.read(position) if position else None,
        snapshots=snapshots,
    )
    # Before the answer begins, so that a database outage is a problem and no broken stream.
    found = await api.locate(call.runtime, call.caller, thread_id)
    return EventStream(lambda emit: watch.run(emit, found=found), state=call.state, kind="thread", access=access)
