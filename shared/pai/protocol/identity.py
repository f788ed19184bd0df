"""Who asks. Everything a thread owns belongs to one identity."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from pai.protocol.errors import ValidationFailed

MAX_OWNER = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
    """`tenant` and `subject` together own threads; `trusted` callers may name whose threads they act on.

    `expires_at`: when this access ends (seconds since the epoch), and with it every watch that it opened.
    """

    subject: str
    tenant: str = "default"
    trusted: bool = False
    claims: dict[str, Any] = field(default_factory=dict, compare=False)
    expires_at: float | None = field(default=None, compare=False)

    @classmethod
    def of_owner(cls, owner: str) -> "Identity":
        """The inverse of `owner`, for work that goes on when the caller is gone."""
        tenant, _, subject = owner.partition("/")
        return cls(subject=unquote(subject), tenant=unquote(tenant))

    @classmethod
    def parse_owner(cls, text: str, *, at: str = "owner") -> str:
        """An owner as trusted callers name it: `tenant/subject`, both percent-encoded, or a subject of the default
        tenant. -> `Identity.owner`. Raises ValidationFailed at `at`."""
        tenant, separator, subject = text.rpartition("/")
        try:
            named = cls(
                subject=unquote(subject, errors="strict"),
                tenant=unquote(tenant, errors="strict") if separator else "default",
            )
        except UnicodeDecodeError:
            raise ValidationFailed.at(at, "is not percent-encoded UTF-8") from None
        if "/" in tenant or named.fault is not None:
            raise ValidationFailed.at(at, named.fault or "is tenant/subject, both percent-encoded, or a subject")
        return named.owner

    @property
    def owner(self) -> str:
        """The key under which threads and files are stored."""
        return f"{quote(self.tenant, safe='')}/{quote(self.subject, safe='')}"

    @property
    def fault(self) -> str | None:
        """Why nothing can be stored for this identity; None when all is well."""
        if not (isinstance(self.subject, str) and isinstance(self.tenant, str)):
            return "subject and tenant must be text"
        if not (self.subject and self.tenant):
            return "subject and tenant must not be empty"
        try:
            length = len(self.owner)
        except UnicodeEncodeError:
            return "subject and tenant must be valid text"
        return f"subject and tenant are too long: {length} of {MAX_OWNER} bytes" if length > MAX_OWNER else None
