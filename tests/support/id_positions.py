"""Where an operation of the OpenAPI document takes ids: path, query, headers, and every place in its body.

What it does not know it refuses, so that a new route or field is looked at by a person.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = {
    "thread_id": "thread",
    "run_id": "run",
    "queue_item_id": "queue_item",
    "file_id": "file",
    "threadId": "thread",
    "parentThreadId": "thread",
    "x-pai-thread-id": "thread",
    "runId": "run",
    "messageId": "message",
    "messageIds": "message",
    "toolCallId": "tool_call",
    "actionId": "action",
    "queueItemId": "queue_item",
    "fileId": "file",
    "responseId": "response",
    "Idempotency-Key": "key",
    "X-Pai-Owner": "owner",
    "pageToken": "page",
    "after": "position",
    "Last-Event-ID": "position",
}
"""Which kind of id a parameter or a field of this name holds."""

NO_IDS = {
    "path": {"agent", "name"},
    "query": {"category", "status", "limit", "agent", "hidden", "snapshot", "token", "intent", "expires", "signature"},
    "header": {"Range", "x-pai-filename", "x-pai-metadata"},
}
"""Parameters that name nothing which belongs to somebody. `token` and `signature` are credentials themselves."""

FREE = ("metadata", "privateMetadata", "payload", "value", "input", "clientData", "providerMetadata", "detail")
"""Fields with JSON of the application's own."""


class Unknown(AssertionError):
    """The document has something that this module must be told about."""


@dataclass
class Position:
    """`place`: path, query, header or body. `path`: the keys to it in the body."""

    place: str
    name: str
    kind: str
    path: tuple[str | int, ...] = ()
    body: Any = None

    def __str__(self) -> str:
        return f"{self.place}:{'.'.join(map(str, self.path)) or self.name}"


@dataclass
class Operation:
    name: str
    method: str
    path: str
    positions: list[Position] = field(default_factory=list)
    body: Any = None
    has_body: bool = False


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Every operation that asks who calls, with all positions of ids. Raises Unknown."""
    for path, item in document["paths"].items():
        for method, described in item.items():
            if "401" in described["responses"]:
                yield _operation(document, method, path, described)


def _operation(document: Mapping[str, Any], method: str, path: str, described: Mapping[str, Any]) -> Operation:
    found = Operation(described["operationId"], method.upper(), path)
    for parameter in described.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        if name in KINDS:
            found.positions.append(Position(place, name, KINDS[name]))
        elif name not in NO_IDS[place]:
            raise Unknown(f"{found.name}: what does the {place} parameter {name!r} name? Tell {__name__}.")
    for media_type, content in described.get("requestBody", {}).get("content", {}).items():
        found.has_body = True
        if media_type != "application/json":
            continue
        found.body = content.get("example")
        if found.body is None:
            raise Unknown(f"{found.name}: its body needs an example in the document.")
        for keys, sample in _samples(document, content["schema"], ()):
            kind = KINDS[next(key for key in reversed(keys) if isinstance(key, str))]
            found.positions.append(Position("body", ".".join(map(str, keys)), kind, keys, sample))
    return found


def _samples(document: Mapping[str, Any], schema: Mapping[str, Any], keys: tuple[str | int, ...]) -> Iterator[Any]:
    """`(keys, value)` for every id in what the schema allows, in the smallest value that has it."""
    for option in _options(document, schema):
        if option.get("type") == "array":
            for below, sample in _samples(document, option["items"], (*keys, 0)):
                yield below, [sample]
            continue
        required = option.get("required", ())
        for name, property_schema in option.get("properties", {}).items():
            below: Iterator[Any]
            if name in KINDS:
                many = any(one.get("type") == "array" for one in _options(document, property_schema))
                below = iter([((*keys, name, 0), [""])] if many else [((*keys, name), "")])
            elif name in FREE or name == "clientTools":
                continue
            elif name.endswith(("Id", "Ids", "_id")):
                raise Unknown(f"What does the field {name!r} name? Tell {__name__}.")
            else:
                below = _samples(document, property_schema, (*keys, name))
            for position, sample in below:
                whole = {one: _least(document, option["properties"][one]) for one in required}
                yield position, {**whole, name: sample}


def _options(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if not branches:
        yield schema
    for branch in branches:
        yield from _options(document, branch)


def _least(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A value that the schema allows."""
    option = next(_options(document, schema))
    if "const" in option:
        return option["const"]
    if "enum" in option:
        return option["enum"][0]
    match option.get("type"):
        case "object":
            return {
                name: _least(document, option["properties"][name])
                for name in option.get("required", ())
                if name in option.get("properties", {})
            }
        case "array":
            return [_least(document, option["items"])] if option.get("minItems") else []
        case "string":
            return "x"
        case "integer" | "number":
            return 1
        case "boolean":
            return False
    return {}


def merged(base: Any, extra: Any) -> Any:
    """What `extra` adds to `base`. Of two lists that of `extra` stays, of two other values that of `base`."""
    if isinstance(base, dict) and isinstance(extra, dict):
        both = {key: merged(base[key], extra[key]) for key in base.keys() & extra.keys()}
        return {**copy.deepcopy(extra), **copy.deepcopy(base), **both}
    return copy.deepcopy(extra if isinstance(base, list) and isinstance(extra, list) else base)


def filled(body: Any, own: Mapping[str, str]) -> Any:
    """The body with ids of this world wherever it has an id."""
    if isinstance(body, list):
        return [filled(item, own) for item in body]
    if not isinstance(body, dict):
        return body
    result: dict[str, Any] = {}
    for key, value in body.items():
        if key in KINDS:
            result[key] = [own[KINDS[key]]] if isinstance(value, list) else own[KINDS[key]]
        else:
            result[key] = value if key in FREE else filled(value, own)
    return result


def put(body: Any, keys: tuple[str | int, ...], value: str) -> Any:
    """The body with this value at that place."""
    if not keys:
        return value
    result = copy.copy(body)
    result[keys[0]] = put(body[keys[0]], keys[1:], value)
    return result
