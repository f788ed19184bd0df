"""JSON Schemas that clients supply: hostile until shown otherwise.

A validator would fetch remote `$ref`s, files included, and a few hundred bytes of references can make it work for ever.
So only references inside are allowed, nothing is ever retrieved, and size, depth and the work of a check are limited.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import jsonschema_rs

from pai.contract.reference_cost import ReferenceCost
from pai.contract.schema import Schema, cleaned, dotted
from pai.protocol.errors import MAX_ERRORS, FieldError, ValidationFailed
from pai.protocol.json import dumps, loads

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 64

_MAX_WORK = 10**8
"""Checks of one value: about a second."""
_MAX_EXPLAINED = 10**5
"""Above this many checks, what is wrong is not listed: each alternative of each place would have its own error."""
_BACKTRACK_LIMIT = 10_000
"""Steps of one regular expression on one text; beyond it the text counts as not matching."""
_PATTERN_SIZE = 1 << 20
_MESSAGE_LENGTH = 300
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DIALECTS = tuple(f"json-schema.org/{draft}/schema" for draft in ("draft-07", "draft/2019-09", "draft/2020-12"))


class JsonSchema(Schema):
    """The same document validates and describes; values pass through unchanged.

    Raises ValidationFailed for a document that is no schema, too large, too deep, or refers outside of itself.
    """

    def __init__(self, document: Any, *, at: str = "", max_bytes: int = MAX_SCHEMA_BYTES) -> None:
        self._compiled = _checked(document, at=at, max_bytes=max_bytes)
        self.json_schema = self.output_json_schema = _as_object(document)

    def parse(self, value: Any, *, at: str = "") -> Any:
        places, depth = _measured(value)
        work = self._compiled.cost.work(places=places, depth=depth)
        if work > _MAX_WORK:
            raise ValidationFailed.at(at, "takes too many checks: send less, or use a schema with fewer references")
        if self._compiled.validator.is_valid(value):
            return value
        if work > _MAX_EXPLAINED:
            raise ValidationFailed.at(at, "does not match its schema")
        errors: list[FieldError] = []
        for error in self._compiled.validator.iter_errors(value):
            errors.append(FieldError(path=dotted(at, error.instance_path), message=error.message[:_MESSAGE_LENGTH]))
            if len(errors) == MAX_ERRORS:
                break
        raise ValidationFailed(errors=errors)

    def dump(self, value: Any, *, at: str = "") -> Any:
        return self.parse(cleaned(value, at=at), at=at)


class _Error(Protocol):
    message: str
    instance_path: list[str | int]


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Iterator[_Error]: ...


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: _Validator
    cost: ReferenceCost


class _Refused(Exception):
    """What is wrong with a document, before the path to it is known."""


def _checked(document: Any, *, at: str, max_bytes: int) -> _Compiled:
    if not isinstance(document, dict | bool):
        raise ValidationFailed.at(at, "a JSON Schema is an object or a boolean")
    data = dumps(cleaned(document, at=at))
    if len(data) > max_bytes:
        raise ValidationFailed.at(at, f"a JSON Schema has at most {max_bytes} bytes (this one has {len(data)})")
    try:
        return _compiled(data)
    except _Refused as refused:
        raise ValidationFailed.at(at, str(refused)) from None


@lru_cache(maxsize=256)
def _compiled(data: bytes) -> _Compiled:
    document = loads(data)
    _check_document(document, depth=1)
    try:
        cost = ReferenceCost(_as_object(document))
        validator = jsonschema_rs.validator_for(
            document,
            mask="value",
            retriever=_refuse,
            validate_formats=False,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=_BACKTRACK_LIMIT, size_limit=_PATTERN_SIZE, dfa_size_limit=_PATTERN_SIZE
            ),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = getattr(error, "message", str(error))
        raise _Refused(f"is no JSON Schema that can be used: {reason[:_MESSAGE_LENGTH]}") from None
    return _Compiled(validator, cost)


def _check_document(node: Any, *, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise _Refused(f"a JSON Schema has at most {MAX_SCHEMA_DEPTH} levels")
    if isinstance(node, list):
        for item in node:
            _check_document(item, depth=depth + 1)
    elif isinstance(node, Mapping):
        for key, item in node.items():
            if key in _REFERENCES and isinstance(item, str) and not item.startswith("#"):
                raise _Refused(f"{key} may only point inside (#/...), not to {item[:100]!r}")
            if key == "$schema" and isinstance(item, str) and not item.rstrip("#").endswith(_DIALECTS):
                raise _Refused(f"the dialect {item[:100]!r} is not supported; use draft 2020-12, 2019-09 or 7")
            _check_document(item, depth=depth + 1)


def _as_object(document: Any) -> dict[str, Any]:
    """`true` allows anything and `false` nothing; providers and manifests want to see an object."""
    if isinstance(document, bool):
        return {} if document else {"not": {}}
    return dict(document)


def _measured(value: Any) -> tuple[int, int]:
    """`(places, depth)`: the value and everything inside of it, and its levels."""
    places, depth, level = 0, 0, [value]
    while level:
        places += len(level)
        depth += 1
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
    return places, depth


def _refuse(uri: str) -> Any:
    raise ValueError(f"references are not retrieved: {uri}")
