"""Which agents there are, and what each one is."""

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pai.contract.manifest import listing, manifest
from pai.protocol.json import dumps
from pai_api.call import CallDep, document_agent
from pai_api.openapi import operation
from pai_api.schemas import AgentList, Manifest
from pai_api.state import ApiState

router = APIRouter(prefix="/api/pai")


@router.get(
    "",
    **operation(
        "listAgents", summary="List the agents", tag="agents", answers={200: ("Every agent of this server.", AgentList)}
    ),
)
async def list_agents(request: Request) -> Response:
    """The entry point: each agent's routes are below `/api/pai/{agent}`."""
    state = ApiState.of(request)
    await state.admit(request)
    return _json({"agents": [listing(agent) for agent in state.runtime.registry]})


@router.get(
    "/{agent}",
    dependencies=[Depends(document_agent)],
    **operation(
        "getManifest", summary="Read an agent's manifest", tag="agents", answers={200: ("The manifest.", Manifest)}
    ),
)
async def get_manifest(call: CallDep) -> Response:
    """Tools with their schemas, commands, UI data and metadata schemas. Private schemas never appear."""
    return _json(manifest(call.caller.agent))


def _json(value: object) -> Response:
    return Response(dumps(value), media_type="application/json")
