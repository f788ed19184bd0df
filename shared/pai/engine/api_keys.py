"""API keys: made once, shown once, kept as hashes.

A key is `pai_{id}_{secret}`. The secret has 256 random bits, so one round of SHA-256 is as good as a slow hash: there
is nothing to guess.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import bindparam, insert, select, update

from pai.protocol.errors import NotFound, ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.times import now_ms
from pai.store.store import Store
from pai.store.tables import ApiKey, ApiKeyTable, table_of

_KEY = table_of(ApiKeyTable)
_BY_ID = select(_KEY).where(_KEY.c.key_id == bindparam("key_id"))
_FORM = re.compile(r"pai_(?P<key_id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{43})\Z")
_MAX_NAME = 200

PREFIX = "pai_"
USED_EVERY = timedelta(minutes=5)
"""How coarse `last_used_at` is, so that reading stays reading."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """`text` is what the program shows; nobody can read it again."""

    row: ApiKey
    text: str


@dataclass(frozen=True, slots=True)
class ShownKey:
    """What a request showed, taken apart."""

    key_id: str
    secret: str

    @classmethod
    def read(cls, text: str) -> "ShownKey | None":
        match = _FORM.match(text)
        return None if match is None else cls(**match.groupdict())

    def opens(self, row: ApiKey | None) -> bool:
        """Whether the secret is the key's, in a time that says nothing about it."""
        expected = "" if row is None else row.secret_hash
        return hmac.compare_digest(_hash(self.secret), expected)


def is_valid(row: ApiKey, *, at: int) -> bool:
    """Neither revoked nor expired; `at` in milliseconds."""
    return row.revoked_at is None and (row.expires_at is None or at < row.expires_at)


def identity_of(row: ApiKey) -> Identity:
    return Identity(
        subject=row.subject,
        tenant=row.tenant,
        trusted=row.trusted,
        claims={"keyId": row.key_id, "keyName": row.name},
        expires_at=None if row.expires_at is None else row.expires_at / 1000,
    )


async def create_key(
    store: Store, name: str, *, identity: Identity, expires_in: timedelta | None = None, key_id: str | None = None
) -> NewKey:
    """Raises ValidationFailed for a name or an identity that cannot be used, and Unavailable."""
    if not (name.strip() and len(name) <= _MAX_NAME and name.isprintable()):
        raise ValidationFailed.at("name", f"must have 1 to {_MAX_NAME} printable characters")
    if fault := identity.fault:
        raise ValidationFailed.at("subject", fault)
    secret, now = secrets.token_urlsafe(32), now_ms()
    row = ApiKey(
        key_id=key_id or secrets.token_hex(8),
        secret_hash=_hash(secret),
        name=name.strip(),
        tenant=identity.tenant,
        subject=identity.subject,
        trusted=identity.trusted,
        created_at=now,
        expires_at=None if expires_in is None else now + round(expires_in.total_seconds() * 1000),
    )
    async with store.write() as connection:
        await connection.execute(insert(_KEY), row.model_dump())
    return NewKey(row, f"{PREFIX}{row.key_id}_{secret}")


async def find_key(store: Store, key_id: str) -> ApiKey | None:
    async with store.autocommit() as connection:
        row = (await connection.execute(_BY_ID, {"key_id": key_id})).mappings().first()
    return None if row is None else ApiKey.of(row)


async def list_keys(store: Store) -> Sequence[ApiKey]:
    """The newest first."""
    async with store.read() as connection:
        rows = await connection.execute(select(_KEY).order_by(_KEY.c.created_at.desc(), _KEY.c.key_id))
        return [ApiKey.of(row) for row in rows.mappings()]


async def revoke_key(store: Store, key_id: str) -> ApiKey:
    """It ends within a minute everywhere; revoking twice is revoking once. Raises NotFound."""
    async with store.write() as connection:
        unrevoked = update(_KEY).where(_KEY.c.key_id == key_id, _KEY.c.revoked_at.is_(None))
        await connection.execute(unrevoked.values(revoked_at=now_ms()))
        row = (await connection.execute(_BY_ID, {"key_id": key_id})).mappings().first()
        if row is None:
            raise NotFound("key")
        return ApiKey.of(row)


def note_use(row: ApiKey, *, at: int) -> bool:
    """Notes a use in the row; whether it must be written, because the last one that was is long ago."""
    if row.last_used_at is not None and at - row.last_used_at < USED_EVERY.total_seconds() * 1000:
        return False
    row.last_used_at = at
    return True


async def write_use(store: Store, row: ApiKey) -> None:
    """Raises Unavailable."""
    async with store.write() as connection:
        used = update(_KEY).where(_KEY.c.key_id == row.key_id)
        await connection.execute(used.values(last_used_at=row.last_used_at))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
