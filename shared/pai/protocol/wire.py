"""The base of every record on the wire: camelCase JSON outside, snake_case attributes inside."""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """A frozen record. Optional keys are absent when None, except those in `nullable`, where a null is data.

    Unknown keys are ignored on input: a newer peer may send more.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    nullable: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if value is not None or key in self.nullable}

    def wire(self) -> dict[str, Any]:
        """Plain JSON values with the wire's keys."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def read(cls, data: Any) -> Self:
        """Parse a wire record. Raises pydantic.ValidationError."""
        return cls.model_validate(data)
