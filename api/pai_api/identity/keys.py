"""API keys as bearer tokens: `Authorization: Bearer pai_...`."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from starlette.requests import Request

from pai.engine import api_keys
from pai.engine.api_keys import ShownKey
from pai.engine.runtime import Runtime
from pai.protocol.errors import PaiError, Unauthenticated
from pai.protocol.identity import Identity
from pai.protocol.times import now_ms
from pai.store.tables import ApiKey
from pai_api.identity.bearer import bearer_token

_MOST = 10_000


class Keys:
    """Remembers keys for some seconds, so that a request costs no SQL; of several that ask at once one asks SQL."""

    def __init__(self, cache: timedelta) -> None:
        self._cache_seconds = cache.total_seconds()
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[ApiKey | None]] = {}

    def takes(self, request: Request) -> bool:
        """Whether this looks like a key, and not like a token of another kind."""
        return (bearer_token(request) or "").startswith(api_keys.PREFIX)

    async def __call__(self, request: Request, /) -> Identity:
        shown = ShownKey.read(bearer_token(request) or "")
        if shown is None:
            raise Unauthenticated("An API key is needed: `Authorization: Bearer pai_...`.")
        runtime: Runtime = request.app.state.pai.runtime
        row = await self._find(runtime, shown.key_id)
        if not shown.opens(row) or row is None:
            raise Unauthenticated("This API key does not exist.")
        identity = self._admitted(row)
        if api_keys.note_use(row, at=now_ms()):
            runtime.spawn(_written(runtime, row))
        return identity

    async def again(self, request: Request, key_id: str) -> Identity:
        """The identity of a key that was shown before. Raises Unauthenticated when it is not valid any more."""
        row = await self._find(request.app.state.pai.runtime, key_id)
        if row is None:
            raise Unauthenticated("This API key does not exist.")
        return self._admitted(row)

    @staticmethod
    def _admitted(row: ApiKey) -> Identity:
        if not api_keys.is_valid(row, at=now_ms()):
            raise Unauthenticated(f"This API key is {'expired' if row.revoked_at is None else 'revoked'}.")
        return api_keys.identity_of(row)

    async def _find(self, runtime: Runtime, key_id: str) -> ApiKey | None:
        found = self._known.get(key_id)
        if found is not None and monotonic() - found[0] < self._cache_seconds:
            return found[1]
        asking = self._asking.get(key_id)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(runtime, key_id))
            self._asking[key_id] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key_id, None))
        # Whoever asked first may leave; the others still wait for the answer.
        return await asyncio.shield(asking)

    async def _ask(self, runtime: Runtime, key_id: str) -> ApiKey | None:
        asked_at = monotonic()
        row = await api_keys.find_key(runtime.store, key_id)
        self._known[key_id] = (asked_at, row)
        self._known.move_to_end(key_id)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return row


async def _written(runtime: Runtime, row: ApiKey) -> None:
    """A use that cannot be written is no reason to refuse it."""
    with suppress(PaiError):
        await api_keys.write_use(runtime.store, row)
