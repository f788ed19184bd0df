"""Receipts: a mutation that is asked for twice is done once, and answered twice with the same result.

A receipt is written in the transaction of the mutation, keyed by what identifies the request: the Idempotency-Key, the
message id of a send, the response id of an answer.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import and_, bindparam, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine.locked import version_by_name
from pai.protocol.errors import IdempotencyConflict, MessageConflict
from pai.store.statements import Statement
from pai.store.store import fetch_all
from pai.store.tables import Receipt, ReceiptTable, table_of

_RECEIPT = table_of(ReceiptTable)
_BY_ID = select(_RECEIPT).where(
    _RECEIPT.c.version == bindparam("version"),
    _RECEIPT.c.kind == bindparam("kind"),
    _RECEIPT.c.request_id == bindparam("request_id"),
)
OF_REQUEST = select(_RECEIPT).where(
    _RECEIPT.c.version == version_by_name(),
    or_(
        and_(_RECEIPT.c.kind == "key", _RECEIPT.c.request_id == bindparam("key")),
        and_(_RECEIPT.c.kind == bindparam("kind"), _RECEIPT.c.request_id == bindparam("request_id")),
    ),
)
"""The receipts of the thread with a name that one request may have: by its key, and by the id of its kind."""

KEY = "key"
MESSAGE = "message"
RESPONSE = "response"


def request_hash(operation: str, request: Any) -> str:
    """The same for the same request, whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps([operation, request], option=orjson.OPT_SORT_KEYS)).hexdigest()


async def find_receipt(connection: AsyncConnection, *, version: str, kind: str, request_id: str) -> Receipt | None:
    [rows] = await fetch_all(connection, [(_BY_ID, {"version": version, "kind": kind, "request_id": request_id})])
    return Receipt.of(rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class Named:
    """What names a request beside its key: the id of a message or of a response, and the hash of its content."""

    kind: str = ""
    request_id: str | None = None
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What makes a request the same when it comes again."""

    key: str | None
    key_hash: str
    named: Named = Named()

    def lookup(self, name: dict[str, str]) -> list[Statement]:
        """The statement that finds the receipts of the thread with a name, if there can be any."""
        if self.key is None and self.named.request_id is None:
            return []
        # No receipt has an empty id.
        ids = {"key": self.key or "", "kind": self.named.kind, "request_id": self.named.request_id or ""}
        return [(OF_REQUEST, {**name, **ids})]

    def recorded(self, receipts: Iterable[Receipt]) -> dict[str, Any] | None:
        """The recorded result. Raises IdempotencyConflict or MessageConflict when an id was another request's."""
        found = {receipt.kind: receipt for receipt in receipts}
        if (by_key := found.get(KEY)) is not None:
            if by_key.request_hash != self.key_hash:
                raise IdempotencyConflict
            return by_key.result
        if (by_id := found.get(self.named.kind)) is not None:
            if by_id.request_hash != self.named.content_hash:
                raise MessageConflict if by_id.kind == MESSAGE else IdempotencyConflict
            return by_id.result
        return None

    def receipts(self) -> list[tuple[str, str, str]]:
        """What is to be written, as (kind, id, hash)."""
        named = self.named
        made = [] if named.request_id is None else [(named.kind, named.request_id, named.content_hash)]
        return made if self.key is None else [*made, (KEY, self.key, self.key_hash)]
