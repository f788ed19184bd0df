"""One way to ask "is this JSON what was declared?", whether it was declared as a Python type or as a JSON Schema.

JSON is read strictly (`"true"` is no boolean, `1` is no string) in pydantic's JSON mode, in which dates, UUIDs,
decimals and enums are read from strings. Keys that a model does not declare are refused, unless one says otherwise
itself (`extra="allow"` or `"ignore"` in its own config).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from pai.protocol.errors import MAX_ERRORS, DeclarationError, FieldError, ValidationFailed
from pai.protocol.field_errors import field_message
from pai.protocol.json import dumps
from pai.protocol.text import NotJson, clean, clean_text


class Schema(ABC):
    """`json_schema` describes what `parse` takes, `output_json_schema` what `dump` gives."""

    json_schema: dict[str, Any]
    output_json_schema: dict[str, Any]

    @abstractmethod
    def parse(self, value: Any, *, at: str = "") -> Any:
        """JSON in, the declared Python value out. `at` is the path of the value in the caller's request.

        Raises ValidationFailed with one error per wrong place (at most 20).
        """

    @abstractmethod
    def dump(self, value: Any, *, at: str = "") -> Any:
        """A Python value in, clean JSON out. Raises ValidationFailed."""

    def load(self, value: Any) -> Any:
        """What `dump` wrote back into a Python value. Raises ValidationFailed."""
        return self.parse(value)

    def complete(self, value: Any, *, at: str = "") -> Any:
        """JSON in, JSON out, with the declared defaults and transforms applied. Raises ValidationFailed."""
        return self.dump(self.parse(value, at=at), at=at)


class TypeSchema(Schema):
    """The schema of a type hint: a pydantic model, dataclass, TypedDict, or anything else pydantic can read.

    Raises DeclarationError for a hint that has no JSON form; `what` names the declaration in its message.
    """

    def __init__(self, hint: Any, *, what: str) -> None:
        self.hint = hint
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
            self.json_schema, own_rules = _json_schema(self._adapter, mode="validation")
            self.output_json_schema, _ = _json_schema(self._adapter, mode="serialization")
        except Exception as error:  # a hint may run any code of its own while it is read
            reason = str(error).split("\n", 1)[0]
            raise DeclarationError(
                f"{what}: {_named(hint)} cannot be written as JSON ({reason}). Use a pydantic model or JSON types."
            ) from error
        self._extra: Any = None if own_rules else "forbid"

    def parse(self, value: Any, *, at: str = "") -> Any:
        return self._read(value, at=at, strict=True, extra=self._extra)

    def load(self, value: Any) -> Any:
        # Computed fields and serializers may write what a strict reader refuses.
        return self._read(value, at="", strict=False, extra=None)

    def _read(self, value: Any, *, at: str, strict: bool, extra: Any) -> Any:
        data = _encoded(value, at=at)
        try:
            return self._adapter.validate_json(data, strict=strict, extra=extra)
        except ValidationError as error:
            raise ValidationFailed(errors=_field_errors(error, at=at)) from None
        except RecursionError:
            raise ValidationFailed.at(at, "is nested too deeply") from None

    def _dumped(self, checked: Any) -> Any:
        try:
            return self._adapter.dump_python(checked, mode="json", by_alias=True, warnings="error")
        except UnicodeEncodeError:  # a lone surrogate in a key; in values pydantic lets them pass
            return to_jsonable_python(_with_clean_keys(self._adapter.dump_python(checked, by_alias=True)))

    def dump(self, value: Any, *, at: str = "") -> Any:
        try:
            checked = self._adapter.validate_python(value)
            plain = self._dumped(checked)
        except ValidationError as error:
            raise ValidationFailed(errors=_field_errors(error, at=at)) from None
        except (PydanticSerializationError, ValueError, TypeError) as error:
            raise ValidationFailed.at(at, f"cannot be written as JSON ({_last_line(error)})") from None
        except RecursionError:
            raise ValidationFailed.at(at, "refers to itself or is nested too deeply") from None
        if _has_null(plain) and _has_nonfinite(self._adapter.dump_python(checked)):
            raise ValidationFailed.at(
                at, "NaN and infinity are not JSON"
            )  # pydantic writes them as null where a type is Any
        return cleaned(plain, at=at)


def _with_clean_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {clean_text(key) if isinstance(key, str) else key: _with_clean_keys(item) for key, item in value.items()}
    return [_with_clean_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def schema_of(declared: Any, *, what: str) -> Schema:
    """The schema of a declaration: a type hint, or None for any JSON. Raises DeclarationError."""
    if isinstance(declared, Schema):
        return declared
    return TypeSchema(Any if declared is None else declared, what=what)


def require_object(schema: Schema, *, what: str) -> None:
    """Models are given objects only, and metadata is merged by key. Raises DeclarationError."""
    if schema.json_schema.get("type") != "object":
        raise DeclarationError(f"{what} must be an object: wrap it in a pydantic model.")


def dotted(at: str, location: Sequence[str | int]) -> str:
    """`message` and `("parts", 0, "text")` -> `message.parts.0.text`."""
    return ".".join([*([at] if at else []), *(str(item) for item in location)])


class _Generator(GenerateJsonSchema):
    """Without the titles pydantic makes up for fields (a model pays for every token of a tool's schema), and with
    `additionalProperties: false` wherever unknown keys are refused."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}
    own_rules: bool = False

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return self._closed(super().model_schema(schema), extra=schema["cls"].model_config.get("extra"))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        config = getattr(schema.get("cls"), "__pydantic_config__", None) or {}
        return self._closed(super().typed_dict_schema(schema), extra=config.get("extra"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        config = getattr(schema["cls"], "__pydantic_config__", None) or {}
        return self._closed(super().dataclass_schema(schema), extra=config.get("extra"))

    def _closed(self, document: JsonSchemaValue, *, extra: str | None) -> JsonSchemaValue:
        if extra in ("allow", "ignore"):
            self.own_rules = True
        elif extra is None and document.get("type") == "object" and "properties" in document:
            document["additionalProperties"] = False
        return document


def _json_schema(adapter: TypeAdapter[Any], *, mode: JsonSchemaMode) -> tuple[dict[str, Any], bool]:
    """The document, and whether a type in it has rules of its own for unknown keys."""
    seen: list[_Generator] = []

    class Generator(_Generator):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seen.append(self)

    document = adapter.json_schema(mode=mode, schema_generator=Generator)
    own_rules = any(generator.own_rules for generator in seen)
    return _rooted(document), own_rules


def _rooted(document: dict[str, Any]) -> dict[str, Any]:
    """A recursive type is a `$ref` at its root; providers want to see the object there."""
    reference = document.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return document
    target: Mapping[str, Any] = document["$defs"][reference.removeprefix("#/$defs/")]
    return {**target, **{key: value for key, value in document.items() if key != "$ref"}}


def _encoded(value: Any, *, at: str) -> bytes:
    try:
        return dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValidationFailed.at(at, f"is not JSON ({error})") from None


def cleaned(value: Any, *, at: str) -> Any:
    """`pai.protocol.text.clean` with the path of the value in front. Raises ValidationFailed."""
    try:
        return clean(value)
    except NotJson as error:
        raise ValidationFailed.at(dotted(at, [error.path] if error.path else []), error.message) from None


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_null(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_null(item) for item in value)
    return value is None


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nonfinite(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_nonfinite(item) for item in value)
    return isinstance(value, float) and not math.isfinite(value)


def _field_errors(error: ValidationError, *, at: str) -> list[FieldError]:
    problems = error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
    return [FieldError(path=dotted(at, problem["loc"]), message=field_message(problem)) for problem in problems]


def _last_line(error: Exception) -> str:
    return str(error).strip().split("\n")[-1].strip()


def _named(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
