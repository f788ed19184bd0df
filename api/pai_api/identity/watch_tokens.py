"""Watch tokens: what a browser puts into the address of an EventSource, which cannot send headers.

A token is `{payload}.{signature}`, both base64url; the payload is JSON. It opens one watch (of one thread, or of the
list) of one agent for one owner, as an ordinary caller, and nothing else.
"""

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass

from pai.protocol.errors import Unauthenticated
from pai.protocol.json import dumps, loads

PURPOSE = "watch"
_MOST_CHARACTERS = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPass:
    """`thread_id` None: the list of threads. Times in seconds since the epoch.

    `opens_until`: how long watches may be opened. `ends_at`: when a watch that it opened ends; None: when the key
    `key_id` does, or never.
    """

    tenant: str
    subject: str
    agent: str
    thread_id: str | None
    opens_until: float
    ends_at: float | None
    key_id: str | None

    def signed(self, key: bytes) -> str:
        payload = urlsafe_b64encode(dumps(asdict(self))).rstrip(b"=")
        return f"{payload.decode()}.{_signature(payload, key)}"

    @classmethod
    def read(cls, token: str, key: bytes, *, now: float, agent: str, thread_id: str | None) -> "WatchPass":
        """Raises Unauthenticated."""
        text, _, signature = token.partition(".")
        try:
            payload = text.encode("ascii")
            given = signature.encode("ascii")
        except UnicodeEncodeError:
            raise Unauthenticated("This is no watch token.") from None
        if len(token) > _MOST_CHARACTERS or not hmac.compare_digest(given, _signature(payload, key).encode()):
            raise Unauthenticated("This is no watch token.")
        try:
            found = cls(**loads(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))))
        except (binascii.Error, ValueError, TypeError):  # signed by another version
            raise Unauthenticated("This watch token cannot be read.") from None
        if now >= found.opens_until:
            raise Unauthenticated("The watch token is expired.")
        if (found.agent, found.thread_id) != (agent, thread_id):
            raise Unauthenticated("The watch token is for another watch.")
        return found


def _signature(payload: bytes, key: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(key, payload, hashlib.sha256)).rstrip(b"=").decode()
