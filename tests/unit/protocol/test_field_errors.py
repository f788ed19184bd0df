"""What is wrong with a field is said in PAI's words, and nothing of what was sent is quoted."""

from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import core_schema

from pai.protocol.errors import ValidationFailed
from pai.protocol.field_errors import _MESSAGES, field_message


class Text(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["text"]
    text: str


class File(BaseModel):
    type: Literal["file"]


def _refused(value: str) -> str:
    raise ValueError("is not for you")


Part = Annotated[Text | File, Field(discriminator="type")]
SECRET = "hunter2" * 100


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Text, {"type": "text", "text": [SECRET]}, "text: must be a string"),
        (Text, {"type": "text"}, "text: is missing"),
        (Text, {"type": "text", "text": "", "colour": SECRET}, "colour: is no known key"),
        (Text, {"type": SECRET, "text": ""}, "type: must be 'text'"),
        (Text, SECRET, "must be an object"),
        (Part, {"type": SECRET}, "must have the key 'type' with one of 'text', 'file'"),
        (Part, {}, "must have the key 'type'"),
        (list[int], {}, "must be an array"),
        (list[int], [SECRET], "0: must be an integer"),
        (float, SECRET, "must be a number"),
        (bool, SECRET, "must be true or false"),
        (timedelta, SECRET, "must be a duration"),
        (Annotated[str, Field(min_length=1)], "", "must not be empty"),
        (Annotated[str, Field(max_length=3)], SECRET, "must have 3 characters at most"),
        (Annotated[list[int], Field(min_length=2)], [], "must have 2 items or more"),
        (Annotated[int, Field(ge=1, le=100)], 1000, "must be 100 or less"),
        (Annotated[str, AfterValidator(_refused)], SECRET, "is not for you"),
        (bytes, 5, "must be a valid bytes"),
    ],
)
def test_a_fault_is_said_in_our_own_words(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    failed = ValidationFailed.of(raised.value)
    assert failed.detail == said
    assert SECRET not in str(failed.problem())


def test_every_kind_in_the_table_is_one_of_pydantics() -> None:
    assert set(_MESSAGES) <= set(core_schema.ErrorType.__args__)


def test_what_comes_with_a_kind_that_nobody_knows_is_bounded() -> None:
    assert field_message({"type": "new", "msg": "x" * 10_000}) == "x" * 300
