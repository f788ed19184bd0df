"""What a provider must get back byte for byte, between pydantic-ai's parts and `providerMetadata`.

`{provider: {id?, signature?, details?}}`, where the provider is the name that pydantic-ai gives the part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_jsonable_python

from pai.protocol.text import NotJson, clean

_PAI = "pai"


@dataclass(frozen=True, kw_only=True)
class PartMetadata:
    """The fields of a part that only its provider understands."""

    provider: str | None = None
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    """What PAI itself remembers about the part: `fileId`, `callId`, `resultOf`, `content`, `outcome`."""


def write_metadata(part: Any, **own: Any) -> dict[str, dict[str, Any]] | None:
    """The `providerMetadata` of a part, None when there is nothing to remember."""
    known = {
        "id": getattr(part, "id", None),
        "signature": getattr(part, "signature", None),
        "details": _plain(getattr(part, "provider_details", None)),
    }
    provider: str | None = getattr(part, "provider_name", None)
    present = {name: value for name, value in known.items() if value is not None}
    metadata: dict[str, dict[str, Any]] = {}
    if provider is not None or present:
        metadata[provider or ""] = present
    remembered = {name: value for name, value in own.items() if value is not None}
    if remembered:
        metadata[_PAI] = remembered
    return _cleaned(metadata) or None


def read_metadata(metadata: Any) -> PartMetadata:
    """The inverse; anything that is not of this form reads as nothing."""
    if not isinstance(metadata, Mapping):
        return PartMetadata()
    own = metadata.get(_PAI)
    own = own if isinstance(own, Mapping) else {}
    for provider, fields in metadata.items():
        if provider == _PAI or not isinstance(fields, Mapping):
            continue
        details = fields.get("details")
        return PartMetadata(
            provider=provider or None,
            id=_text(fields.get("id")),
            signature=_text(fields.get("signature")),
            details=dict(details) if isinstance(details, Mapping) else None,
            own=own,
        )
    return PartMetadata(own=own)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _plain(details: Any) -> Any:
    return None if details is None else to_jsonable_python(details, fallback=str)


def _cleaned(metadata: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    try:
        cleaned: dict[str, dict[str, Any]] = clean(metadata)
    except NotJson:
        return {}
    return cleaned


def plain_json(value: Any) -> Any:
    """What a provider's own tool answered, as clean JSON; as text when it is none."""
    try:
        return clean(to_jsonable_python(value, by_alias=True, fallback=str))
    except NotJson:
        return str(value)
