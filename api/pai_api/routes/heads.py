"""Watching the list of threads."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pai.protocol.sse import KEEP_ALIVE, frame
from pai_api.call import Call, document_agent, document_token
from pai_api.direct import DirectRoute
from pai_api.event_stream import MEDIA_TYPE, Emit, EventStream
from pai_api.openapi import operation

READY = frame(b'{"type":"ready"}')

router = APIRouter(route_class=DirectRoute, prefix="/api/pai/{agent}")


@router.get(
    "/heads/watch",
    dependencies=[Depends(document_agent), Depends(document_token)],
    **operation(
        "watchHeads",
        summary="Watch the list of threads",
        tag="watch",
        answers={200: ("Server-sent events; the data of each is one JSON object.", "ThreadHeadEvent")},
        media_type=MEDIA_TYPE,
    ),
)
async def watch_heads(request: Request) -> Response:
    """Changes only, for this identity and agent: `ready`, then `head` and `removed`. Read the list after `ready`.

    Keep the highest revision of each version, and remember what was removed. Another `ready` says that something may
    have been missed: read the list again.
    """
    call, access = await Call.of_watch(request, thread_id=None)

    async def source(emit: Emit) -> None:
        async with call.state.hub.watch_heads(call.caller.owner, call.caller.agent.name) as heads:
            await emit(READY)
            while not heads.ended:
                items = await heads.next(timeout=call.state.settings.keepalive)
                call.state.metrics.events.inc(len(items))
                frames = [frame(item) if isinstance(item, bytes) else READY for item in items]
                await emit(b"".join(frames) or KEEP_ALIVE)

    return EventStream(source, state=call.state, kind="heads", access=access)
