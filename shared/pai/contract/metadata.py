"""The declared types of what messages, threads, runs and requests carry, and what those may be called."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pai.contract.names import check_name
from pai.contract.schema import Schema, TypeSchema, require_object
from pai.protocol.errors import DeclarationError, ValidationFailed
from pai.protocol.ids import ID_RULE, is_id

RESERVED_KEY = "pai"
"""The key of PAI's own facts in a message's metadata."""
RESERVED_PREFIX = "pai-"
_ANY_OBJECT = TypeSchema(dict[str, Any], what="metadata")
_RESERVED_AGENT_NAMES = frozenset({"threads", "files", "agents"})


class MetadataSchema(Schema):
    """Metadata of one kind: its declared type (`schema`), or any JSON object when that is None."""

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self.json_schema = {"type": "object"} if schema is None else schema.json_schema
        self.output_json_schema = {"type": "object"} if schema is None else schema.output_json_schema

    def parse(self, value: Any, *, at: str = "metadata") -> Any:
        """None stands for nothing given."""
        given = _checked({} if value is None else value, at=at)
        return given if self.schema is None else self.schema.parse(given, at=at)

    def dump(self, value: Any, *, at: str = "metadata") -> dict[str, Any]:
        return _checked(
            _ANY_OBJECT.dump(value, at=at) if self.schema is None else self.schema.dump(value, at=at), at=at
        )


def metadata_schema(declared: Any, *, what: str, given: bool = True) -> MetadataSchema:
    """Raises DeclarationError: metadata is an object, and its key `pai` is reserved.

    `given`: whether somebody can give it from the start; a record that begins empty needs a default for every field.
    """
    if declared is None:
        return MetadataSchema(None)
    schema = TypeSchema(declared, what=what)
    require_object(schema, what=what)
    for document in (schema.json_schema, schema.output_json_schema):
        if RESERVED_KEY in document.get("properties", {}):
            raise DeclarationError(f"{what}: the key `{RESERVED_KEY}` is reserved; rename the field.")
    made = MetadataSchema(schema)
    if not given:
        try:
            made.complete({})
        except ValidationFailed as error:
            raise DeclarationError(f"{what} begins empty, so every field needs a default: {error.detail}") from None
    return made


def ui_data_schemas(declared: Mapping[str, Any], *, what: str) -> Mapping[str, Schema]:
    """Raises DeclarationError: `pai-*` parts are PAI's own."""
    schemas: dict[str, Schema] = {}
    for name, hint in declared.items():
        check_name(name, what=f"{what}: ui_data")
        if name.startswith(RESERVED_PREFIX):
            raise DeclarationError(f"{what}: ui_data {name!r}: names that begin with `pai-` are reserved; rename it.")
        schemas[name] = TypeSchema(hint, what=f"{what}: ui_data {name!r}")
    return MappingProxyType(schemas)


def _checked(value: Any, *, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValidationFailed.at(at, "must be an object")
    if RESERVED_KEY in value:
        raise ValidationFailed.at(f"{at}.{RESERVED_KEY}", "is reserved")
    return value


def check_name_of_agent(name: object) -> None:
    """Raises DeclarationError: the name of an agent is an id, and a path that is not taken."""
    if not isinstance(name, str) or not is_id(name):
        raise DeclarationError(f"Agent {name!r}: the name must be an id; {ID_RULE}.")
    if name in _RESERVED_AGENT_NAMES:
        raise DeclarationError(f"Agent {name!r}: the name is taken by a path of the API; choose another.")


def check_model(model: Any, *, what: str) -> None:
    """Raises DeclarationError unless it is `demo`, `provider:name`, or a model object."""
    if isinstance(model, str):
        provider, separator, name = model.partition(":")
        if model != "demo" and not (provider and separator and name):
            raise DeclarationError(f"{what}: model {model!r} must be `provider:name` (openai:gpt-5), or `demo`.")
    elif model is None or isinstance(model, type | int | float | bytes | Mapping):
        raise DeclarationError(f"{what}: model must be `provider:name`, a pydantic-ai Model, or `demo`.")
