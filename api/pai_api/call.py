"""One request as the engine sees it: who asks, which agent, which key."""

from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from pai.engine.runtime import Caller, Reply, Runtime
from pai.protocol.errors import Forbidden, NotFound, ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.ids import ID_PATTERN, ID_RULE, is_id
from pai.protocol.json import dumps
from pai.protocol.wire import WireModel
from pai_api.identity.gate import Access
from pai_api.state import ApiState

TResult = TypeVar("TResult", bound=WireModel)

MAX_KEY = 200
OWNER_HEADER = "X-Pai-Owner"


@dataclass(frozen=True, slots=True)
class Call:
    request: Request
    state: ApiState
    caller: Caller

    @classmethod
    async def of(cls, request: Request) -> "Call":
        """Raises Unauthenticated, Forbidden, RateLimited, and NotFound for an unknown agent."""
        state = ApiState.of(request)
        return cls._by(request, state, await state.admit(request))

    @classmethod
    async def of_watch(cls, request: Request, *, thread_id: str | None) -> "tuple[Call, Access]":
        """For a watch, which a token in the address opens as well. Raises what `of` raises."""
        state = ApiState.of(request)
        access = await state.gate.access(request, agent=request.path_params["agent"], thread_id=thread_id)
        await state.count(access.identity)
        return cls._by(request, state, access.identity), access

    @classmethod
    def _by(cls, request: Request, state: ApiState, identity: Identity) -> "Call":
        agent = state.runtime.registry.get(request.path_params["agent"])
        return cls(request, state, Caller(identity=identity, agent=agent, on_behalf=owner_named(request, identity)))

    @property
    def runtime(self) -> Runtime:
        return self.state.runtime

    @property
    def key(self) -> str | None:
        """The `Idempotency-Key`. Raises ValidationFailed."""
        key = self.request.headers.get("idempotency-key")
        if key is not None and not (0 < len(key) <= MAX_KEY and key.isprintable()):
            raise ValidationFailed.at("Idempotency-Key", f"must have 1 to {MAX_KEY} printable characters")
        return key

    def existing(self, name: str) -> str:
        """The id of something that is only read: what cannot be an id names nothing. Raises NotFound."""
        value: str = self.request.path_params[f"{name}_id"]
        if not is_id(value):
            raise NotFound(name)
        return value

    def target(self, name: str) -> str:
        """The id of something that a mutation acts on: what cannot be an id is a mistake. Raises ValidationFailed."""
        value: str = self.request.path_params[f"{name}_id"]
        if not is_id(value):
            raise ValidationFailed.at(f"{name}Id", ID_RULE)
        return value


def owner_named(request: Request, identity: Identity) -> str | None:
    """The owner in `X-Pai-Owner`, on whose threads a trusted caller acts. Raises Forbidden, ValidationFailed."""
    given = request.headers.get(OWNER_HEADER)
    if given is None:
        return None
    if not identity.trusted:
        raise Forbidden("Only trusted callers act for others.")
    return Identity.parse_owner(given, at=OWNER_HEADER)


CallDep = Annotated[Call, Depends(Call.of)]


def record(model: WireModel, *, status: int = 200) -> Response:
    return Response(dumps(model.wire()), status_code=status, media_type="application/json")


def accepted(reply: Reply[TResult]) -> Response:
    """202 for a mutation that was done now, 200 for one whose recorded answer is given again."""
    return record(reply.result, status=200 if reply.replayed else 202)


_ID = {"pattern": ID_PATTERN}

AgentPath = Annotated[str, Path(description="The agent's name.")]
OwnerHeader = Annotated[
    str | None,
    Header(
        alias=OWNER_HEADER,
        description="Whose threads: `tenant/subject`, both percent-encoded, or the subject alone. Default: the "
        "caller's own. Only trusted callers may send it.",
    ),
]


async def document_owner(owner: OwnerHeader = None) -> None:
    """Parameters that `owner_named` reads, for the document."""


async def document_agent(agent: AgentPath, owner: OwnerHeader = None) -> None:
    """Parameters that `Call` reads, for the document."""


async def document_thread(
    agent: AgentPath,
    thread_id: Annotated[str, Path(description="The thread's id.", json_schema_extra=_ID)],
    owner: OwnerHeader = None,
) -> None:
    """Parameters that `Call` reads, for the document. What is no id names nothing (404) or is a mistake (422)."""


async def document_run(run_id: Annotated[str, Path(description="The run's id.", json_schema_extra=_ID)]) -> None:
    """Parameters that `Call` reads, for the document."""


async def document_key(
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="The same key with the same request gets the recorded answer, with another request 409.",
            json_schema_extra={"minLength": 1, "maxLength": MAX_KEY},
        ),
    ] = None,
) -> None:
    """Parameters that `Call` reads, for the document."""


async def document_token(
    token: Annotated[str | None, Query(description="A watch token, where no header can be sent.")] = None,
) -> None:
    """Parameters that `Call` reads, for the document."""


async def document_watch(
    after: Annotated[str | None, Query(description="`{version}:{sequence}`: continue right after it.")] = None,
    snapshot: Annotated[bool, Query(description="Whole states instead of resets.")] = False,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="As `after`, which it beats; browsers send it by themselves."),
    ] = None,
) -> None:
    """Parameters that the watch reads, for the document."""
