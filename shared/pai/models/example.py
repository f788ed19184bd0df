"""The simplest value that a JSON Schema allows, as far as it can be told without solving it."""

from collections.abc import Mapping
from typing import Any

_TEXT = "demo"
_FORMATS = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "demo@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_MAX_DEPTH, _MAX_ITEMS, _MAX_LENGTH = 8, 10, 1000


def example(schema: Any, root: Mapping[str, Any], *, depth: int = 0) -> Any:
    """`root` is the document that references point into. None where there is nothing to go by."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return example(_resolved(reference, root), root, depth=depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(values := schema.get(key), list) and values:
            return values[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            return example(choices[0], root, depth=depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "string":
            return _text(schema)
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "array":
            count = int(schema.get("minItems", 0))
            return [example(schema.get("items", {}), root, depth=depth + 1) for _ in range(min(count, _MAX_ITEMS))]
        case "null":
            return None
        case _:
            properties = schema.get("properties", {})
            return {name: example(properties.get(name), root, depth=depth + 1) for name in schema.get("required", [])}


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), _TEXT)
    return text.ljust(min(schema.get("minLength", 0), _MAX_LENGTH), "o")[: schema.get("maxLength")]


def _number(schema: Mapping[str, Any]) -> Any:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in schema:
        return min(1, schema["exclusiveMaximum"] - 1)
    return min(1, schema.get("maximum", 1))


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
    return found
