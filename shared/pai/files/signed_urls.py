"""URLs that open one file for a while, for browsers and others that have no credentials."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote

from pai.protocol.files import FileIntent


@dataclass(frozen=True, slots=True)
class Grant:
    """What a URL allows. `expires_at` in seconds since the epoch."""

    agent: str
    file_id: str
    intent: FileIntent
    expires_at: int

    def signature(self, key: bytes) -> str:
        said = "\n".join(("v1", self.agent, self.file_id, self.intent, str(self.expires_at)))
        digest = hmac.digest(key, said.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def path(self, key: bytes) -> str:
        """The path of the URL, with what proves it."""
        place = f"/api/pai/{quote(self.agent, safe='')}/files/{quote(self.file_id, safe='~:')}/content"
        return f"{place}?intent={self.intent}&expires={self.expires_at}&signature={self.signature(key)}"

    def is_signed(self, key: bytes, signature: str) -> bool:
        """Whether the server made it, in a time that says nothing about the signature."""
        try:
            shown = base64.b64decode(signature.encode("ascii") + b"=", altchars=b"-_", validate=True)
            made = base64.b64decode(self.signature(key) + "=", altchars=b"-_")
        except (ValueError, binascii.Error):
            return False
        return hmac.compare_digest(shown, made)
