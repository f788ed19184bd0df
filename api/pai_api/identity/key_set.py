"""Public keys of a JSON Web Key Set, from a URL or a file: cached, read again when one is missing, never too often."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import jwt
from starlette.concurrency import run_in_threadpool

from pai.protocol.errors import Unavailable
from pai.protocol.json import loads

REFETCH_SECONDS = 10.0
"""The least time between two readings: tokens with made-up key ids must not become requests to somebody's server."""
STALE_SECONDS = 3600.0
"""How long known keys go on while they cannot be read again."""
_PATIENCE_SECONDS = 5.0
_MOST_BYTES = 1024 * 1024
_MOST_KEYS = 100

logger = logging.getLogger(__name__)


class KeySet:
    """`source`: `https://...`, `http://...`, or the path of a file."""

    def __init__(self, source: str, *, cache_seconds: float, refetch_seconds: float = REFETCH_SECONDS) -> None:
        self.source = source
        self._cache_seconds = cache_seconds
        self._refetch_seconds = min(refetch_seconds, cache_seconds)
        self._keys: Sequence[jwt.PyJWK] = ()
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """The key for verifying; None when there is none. A token without `kid` has one when only one key suits it.

        Raises Unavailable when the keys were never read, or too long ago.
        """
        now = monotonic()
        if now - self._read_at >= self._cache_seconds:
            await self._read_again()
        key = self._match(kid, algorithm)
        if key is None:
            # Keys are rotated: one that is new here may be known there.
            await self._read_again()
            key = self._match(kid, algorithm)
        if monotonic() - self._read_at >= max(STALE_SECONDS, self._cache_seconds):
            raise Unavailable("The keys of the identity provider cannot be read.", retry_after=self._refetch_seconds)
        return key

    async def read(self) -> int:
        """Reads the keys now -> how many there are. Raises ValueError that says what is wrong."""
        self._tried_at = monotonic()
        try:
            data = await (self._fetch() if "://" in self.source else run_in_threadpool(self._load))
            keys = parsed(loads(data))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise ValueError(f"{self.source}: {error or type(error).__name__}") from error
        self._keys, self._read_at = keys, monotonic()
        return len(keys)

    def _match(self, kid: str | None, algorithm: str) -> Any:
        suitable = [key for key in self._keys if kid in (None, key.key_id) and suits(key, algorithm)]
        return suitable[0].key if len(suitable) == 1 else None

    async def _read_again(self) -> None:
        """At most once in a while, and once for all who ask."""
        if self._reading is None:
            if monotonic() - self._tried_at < self._refetch_seconds:
                return
            self._reading = asyncio.ensure_future(self._tried())
            self._reading.add_done_callback(self._done)
        await asyncio.shield(self._reading)

    def _done(self, _: object) -> None:
        self._reading = None

    async def _tried(self) -> None:
        try:
            await self.read()
        except ValueError as error:
            logger.warning("The keys for tokens cannot be read: %s", error)

    async def _fetch(self) -> bytes:
        async with (
            asyncio.timeout(_PATIENCE_SECONDS),
            httpx.AsyncClient(timeout=_PATIENCE_SECONDS, follow_redirects=True) as http,
            http.stream("GET", self.source, headers={"accept": "application/json"}) as response,
        ):
            response.raise_for_status()
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                _check_size(len(data))
            return bytes(data)

    def _load(self) -> bytes:
        path = Path(self.source).expanduser()
        _check_size(path.stat().st_size)
        return path.read_bytes()


def parsed(document: Any) -> Sequence[jwt.PyJWK]:
    """The public signing keys; what is of another kind is passed over. Raises ValueError when there is none."""
    items = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ValueError("this is no JSON Web Key Set")
    keys = [key for item in items[:_MOST_KEYS] if (key := _key(item)) is not None]
    if not keys:
        raise ValueError("there is no public key for signatures in it")
    return keys


def _key(item: Any) -> jwt.PyJWK | None:
    # A symmetric key is no public one: whoever reads the set could sign with it.
    if (
        not isinstance(item, Mapping)
        or item.get("kty") not in ("RSA", "EC", "OKP")
        or item.get("use") not in (None, "sig")
    ):
        return None
    public = {name: value for name, value in item.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        return jwt.PyJWK(public)
    except Exception:  # a key that cannot be read must not take the others with it
        logger.warning("The key %r cannot be used.", item.get("kid"))
        return None


def suits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Whether the key may be used with the algorithm: its own where it names one, else one of its kind."""
    if key._jwk_data.get("alg") is not None:
        return bool(key.algorithm_name == algorithm)
    if key.key_type == "RSA":
        return algorithm[:2] in ("RS", "PS")
    return bool(key.algorithm_name == algorithm)


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise ValueError(f"a key set has at most {_MOST_BYTES} bytes")
