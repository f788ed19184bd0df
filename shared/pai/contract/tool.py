"""A tool: what a model may call, who executes it, and how its input and output are checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pai.contract.errors import ToolInputInvalid, ToolOutputInvalid
from pai.contract.schema import Schema, schema_of
from pai.contract.signature import Signature, arguments_of
from pai.contract.suspension import OUTPUT, Suspension
from pai.protocol.errors import ValidationFailed


class ToolKind(StrEnum):
    """server: a function on a worker. client: executed by the client. external: its output comes from outside."""

    server = "server"
    client = "client"
    external = "external"


class ToolData:
    """The declaration of a value that a call keeps and shows while it is open: the latest one counts.

    With `client_writable` the client may write it too.
    """

    __slots__ = ("client_writable", "hint", "schema")

    def __init__(self, hint: Any = None, *, client_writable: bool = False) -> None:
        self.hint = hint
        self.client_writable = client_writable
        self.schema = schema_of(hint, what="ToolData")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """`dynamic` tools came as a snapshot with a request; their parts are `dynamic-tool` parts.

    `timeout` is how long one call of a server tool may take in all. `queue` names the Celery queue (None: the default).
    """

    name: str
    kind: ToolKind
    description: str
    input: Schema
    output: Schema
    suspensions: Mapping[str, Suspension[Any, Any]] = field(default_factory=lambda: MappingProxyType({}))
    data: Mapping[str, ToolData] = field(default_factory=lambda: MappingProxyType({}))
    timeout: timedelta | None = None
    queue: str | None = None
    max_attempts: int = 1
    dynamic: bool = False
    function: Callable[..., Any] | None = None
    signature: Signature | None = None

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input: always an object."""
        return self.input.json_schema

    @property
    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of the output, as a client reads it (server) or must send it (client, external)."""
        return self.output.output_json_schema if self.kind is ToolKind.server else self.output.json_schema

    @property
    def retry_safe(self) -> bool:
        """Whether a call that died half-way may be run again."""
        return self.max_attempts > 1

    @property
    def is_async(self) -> bool:
        return self.signature is not None and self.signature.is_async

    @property
    def is_generator(self) -> bool:
        """An async generator: everything it yields is an output; all but the last one are preliminary."""
        return self.signature is not None and self.signature.is_generator

    @property
    def takes_context(self) -> bool:
        return self.signature is not None and self.signature.takes_context

    def action_name(self, suspend_name: str | None = None) -> str:
        """`publish_post.approval`, or `pick_file.output`."""
        return f"{self.name}.{suspend_name or OUTPUT}"

    def validate_input(self, value: Any) -> Any:
        """JSON -> the keyword arguments of a server tool's function; other tools get the JSON back.

        Raises ToolInputInvalid.
        """
        try:
            parsed = self.input.parse(value)
        except ValidationFailed as error:
            raise ToolInputInvalid(self.name, errors=error.errors) from None
        return value if self.signature is None else arguments_of(self.signature, parsed)

    def call(self, context: Any, arguments: Mapping[str, Any]) -> Any:
        """Call the function: a result, a coroutine or an async generator, as `is_async` and `is_generator` say."""
        if self.function is None:
            raise TypeError(f"{self.name} is a {self.kind} tool and has no function")
        return self.function(context, **arguments) if self.takes_context else self.function(**arguments)

    def dump_output(self, value: Any) -> Any:
        """What the function returned or yielded -> JSON. Raises ToolOutputInvalid."""
        try:
            return self.output.dump(value)
        except ValidationFailed as error:
            raise ToolOutputInvalid(self.name, errors=error.errors) from None

    def validate_output(self, value: Any, *, at: str = "") -> Any:
        """The output that somebody submitted for a client or external tool: the parsed value.

        What is stored is the JSON itself, untouched. Raises ValidationFailed.
        """
        return self.output.parse(value, at=at)
