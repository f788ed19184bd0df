"""What a whole response must be known by on the next call, kept in the reserved part `data-pai-response`.

It is written when a response is complete. A message without it, because its step was cut short or somebody else made
it, is replayed as plain text and tool calls: ids and signatures of an unfinished response are worth nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_core import to_jsonable_python

from pai.models.model import Chunk
from pai.protocol.text import NotJson, clean

PART_TYPE = "data-pai-response"

_KEPT_DETAILS = frozenset(
    {"background", "compaction", "container_id", "conversation_id", "finish_reason", "input_transformations", "store"}
)


@dataclass(frozen=True, kw_only=True)
class Called:
    """The model that is about to be called: stored responses of the same one keep their ids and signatures.

    `label` tells interfaces of one provider apart (`openai`, `openai-chat`); `system` is pydantic-ai's name for it.
    """

    label: str
    system: str
    base_url: str | None = None


def endpoint(base_url: str | None) -> str | None:
    """A fingerprint: an address may name internal hosts, which no watcher needs to know."""
    return None if base_url is None else hashlib.sha256(base_url.rstrip("/").encode()).hexdigest()[:16]


def response_chunk(response: ModelResponse, called: Called) -> Chunk:
    details = {name: value for name, value in (response.provider_details or {}).items() if name in _KEPT_DETAILS}
    known = {
        "provider": called.label,
        "system": response.provider_name,
        "canonical": response.canonical_system,
        "model": response.model_name,
        "endpoint": endpoint(response.provider_url),
        "responseId": response.provider_response_id,
        "details": to_jsonable_python(details, fallback=str) or None,
        "suspended": True if response.state == "suspended" else None,
    }
    data = {name: value for name, value in known.items() if value is not None}
    try:
        data = clean(data)
    except NotJson:
        data.pop("details", None)
    return {"type": PART_TYPE, "id": "response", "data": data}


def made_by(data: Any, called: Called) -> bool:
    """Whether a stored response came from the interface that is about to be called."""
    return (
        isinstance(data, Mapping)
        and data.get("provider") == called.label
        and data.get("system", called.system) == called.system
    )


def response_fields(data: Mapping[str, Any], called: Called) -> dict[str, Any]:
    """The keyword arguments of the ModelResponse that is rebuilt from stored parts."""
    same_place = data.get("endpoint") in (None, endpoint(called.base_url))
    details = data.get("details")
    return {
        "provider_name": called.system,
        "provider_url": called.base_url if same_place else "https://elsewhere.invalid",
        "canonical_system": _text(data.get("canonical")),
        "model_name": _text(data.get("model")),
        "provider_response_id": _text(data.get("responseId")),
        "provider_details": dict(details) if isinstance(details, Mapping) else None,
        "state": "suspended" if data.get("suspended") is True else "complete",
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
