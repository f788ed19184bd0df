"""What one API process holds while it serves: built in the lifespan, unwound by one exit stack, never a global."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection, Request

from pai.engine.runtime import Runtime
from pai.log.hub import Hub
from pai.log.rates import Rates
from pai.protocol.identity import Identity
from pai.settings import Settings
from pai_api.drain import Drain
from pai_api.identity import Gate
from pai_api.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiState:
    runtime: Runtime
    hub: Hub
    gate: Gate
    rates: Rates
    settings: Settings
    metrics: Metrics
    drain: Drain

    @classmethod
    def of(cls, connection: HTTPConnection) -> "ApiState":
        state: ApiState = connection.app.state.pai
        return state

    async def admit(self, request: Request) -> Identity:
        """Who asks. Raises Unauthenticated, Forbidden, Unavailable, RateLimited."""
        identity = await self.gate(request)
        await self.count(identity)
        return identity

    async def count(self, identity: Identity) -> None:
        """One request of an identity; trusted ones ask for many. Raises RateLimited."""
        if not identity.trusted:
            await self.rates.take(identity.owner)
