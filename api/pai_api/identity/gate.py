"""The gate: every request passes it, and an open watch is asked for again and again whether it still may pass."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from time import time

from starlette.requests import Request

from pai.engine.runtime import Caller, Runtime
from pai.engine.signing import signing_key
from pai.protocol.errors import Forbidden, Unauthenticated
from pai.protocol.identity import Identity
from pai_api.identity.keys import Keys
from pai_api.identity.resolver import Resolver
from pai_api.identity.watch_tokens import PURPOSE, WatchPass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """What a watch was opened with. `again` asks once more; `ends_at` is in seconds since the epoch."""

    identity: Identity
    again: Callable[[], Awaitable[Identity]]
    ends_at: float | None

    async def ended(self, *, every: timedelta) -> None:
        """Returns when the access is revoked or expired, or is somebody else's now.

        Whoever cannot be asked at present has not said no.
        """
        while True:
            pause = every.total_seconds() * random.uniform(0.75, 1.0)
            await asyncio.sleep(pause if self.ends_at is None else max(0.0, min(pause, self.ends_at - time())))
            if self.ends_at is not None and time() >= self.ends_at:
                return
            try:
                identity = await self.again()
            except (Unauthenticated, Forbidden):
                return
            except Exception as error:
                logger.warning("Whether a watch still has access cannot be told: %s", error)
                continue
            if identity != self.identity:
                return


class Gate:
    """`keys` takes what looks like an API key, `other` everything else; one of them is there.

    `other_lasts`: what `other` says of a caller holds until the identity expires.
    """

    def __init__(
        self, *, keys: Keys | None, other: Resolver | None, other_lasts: bool, watch_token_ttl: timedelta
    ) -> None:
        self._other = other
        self._other_lasts = other_lasts
        self._keys = keys
        self._ttl = watch_token_ttl.total_seconds()

    async def __call__(self, request: Request, /) -> Identity:
        """Raises Unauthenticated, Forbidden, and Unavailable when it cannot be told."""
        keys, other = self._keys, self._other
        if keys is not None and (other is None or keys.takes(request)):
            identity = await keys(request)
        elif other is not None:
            identity = await other(request)
        else:
            raise Unauthenticated("Nobody can be recognised here.")
        if fault := identity.fault:
            raise Unauthenticated(f"This identity cannot be used: {fault}.")
        return identity

    async def access(self, request: Request, *, agent: str, thread_id: str | None) -> Access:
        """For a watch, which `?token=` opens, too."""
        token = request.query_params.get("token")
        if token is None:
            identity = await self(request)
            return Access(identity, lambda: self(request), identity.expires_at)
        runtime: Runtime = request.app.state.pai.runtime
        key = await signing_key(runtime, PURPOSE)
        found = WatchPass.read(token, key, now=time(), agent=agent, thread_id=thread_id)
        identity = Identity(subject=found.subject, tenant=found.tenant, expires_at=found.ends_at)

        async def again() -> Identity:
            if found.key_id is not None:
                if self._keys is None:
                    raise Unauthenticated("API keys are not accepted any more.")
                await self._keys.again(request, found.key_id)
            return identity

        await again()
        return Access(identity, again, found.ends_at)

    async def watch_token(
        self, request: Request, runtime: Runtime, caller: Caller, *, thread_id: str | None
    ) -> tuple[str, float]:
        """A token for the caller's threads, and until when it opens watches (seconds since the epoch).

        A watch that it opened lives as long as the key or the token (JWT) of this request. What an application's own
        resolver would say later cannot be known without its request, so such a watch ends with the watch token.
        """
        identity, now = caller.identity, time()
        by_key = self._keys is not None and (self._other is None or self._keys.takes(request))
        opens_until = min(now + self._ttl, identity.expires_at or float("inf"))
        owner = Identity.of_owner(caller.owner)
        watch_pass = WatchPass(
            tenant=owner.tenant,
            subject=owner.subject,
            agent=caller.agent.name,
            thread_id=thread_id,
            opens_until=opens_until,
            ends_at=identity.expires_at if by_key or self._other_lasts else opens_until,
            key_id=identity.claims["keyId"] if by_key else None,
        )
        return watch_pass.signed(await signing_key(runtime, PURPOSE)), opens_until
