"""The keys that sign what PAI hands out and takes back: watch tokens, file URLs."""

import hashlib
import hmac
import secrets

from sqlalchemy import select

from pai.engine.runtime import Runtime
from pai.store.inserts import insert_once
from pai.store.tables import SigningKeyTable, table_of

_KEY = table_of(SigningKeyTable)
_NAME = "default"
_VALUE = select(_KEY.c.value).where(_KEY.c.name == _NAME)


async def signing_key(runtime: Runtime, purpose: str) -> bytes:
    """32 bytes, the same in every process of the installation, another for each purpose. Raises Unavailable."""
    if runtime.signing_secret is None:
        given = runtime.settings.secret
        runtime.signing_secret = given.get_secret_value() if given is not None else await _kept_secret(runtime)
    return hmac.digest(runtime.signing_secret.encode(), purpose.encode(), hashlib.sha256)


async def _kept_secret(runtime: Runtime) -> str:
    """Of two processes that start at once the first one's counts."""
    async with runtime.store.write() as connection:
        made = {"name": _NAME, "value": secrets.token_urlsafe(32)}
        await connection.execute(insert_once(_KEY, connection.dialect.name, unique=["name"]), made)
        value: str = (await connection.execute(_VALUE)).scalar_one()
        return value
