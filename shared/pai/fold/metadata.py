"""Message metadata is merged deeply; anybody's keys must not reach a JavaScript prototype."""

from typing import Any

from pai.fold.errors import MetadataError

FORBIDDEN_KEYS = frozenset({"__proto__", "constructor", "prototype"})


def merge_metadata(base: Any, override: Any) -> Any:
    """A new value: objects merge into objects, everything else (arrays, scalars, null) replaces.

    Keys that name a JavaScript prototype are skipped in what is merged. Nothing is changed in place. Arrays and texts
    at the top count as objects with index keys. Raises MetadataError when `base` is a scalar and `override` has a key.
    """
    if base is None:
        return override
    result = dict(_entries(base))
    for key, value in _entries(override):
        if key in FORBIDDEN_KEYS:
            continue
        if not isinstance(base, (dict, list)):
            raise MetadataError(f"Cannot use 'in' operator to search for '{key}' in {_scalar(base)}")
        current = result.get(key)
        both = isinstance(current, dict) and isinstance(value, dict)
        result[key] = merge_metadata(current, value) if both else value
    return result


def _entries(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, str)):
        return [(str(index), item) for index, item in enumerate(value)]
    return []


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
