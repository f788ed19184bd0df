"""What a contract adds to a client: JSON read as the declared types, and declared types written as JSON.

A value that does not satisfy its declaration (metadata of a thread that is not there yet, output that an older version
of the agent wrote) is handed out as the JSON that it is: one old message must not make a transcript unreadable. What a
caller sends is checked by the server.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from pai.client.records import PaiThreadHead, RunState
from pai.contract.agent import Agent
from pai.contract.schema import Schema
from pai.contract.signature import arguments_of
from pai.contract.tool import Tool, ToolKind
from pai.protocol.errors import ValidationFailed
from pai.protocol.state import PaiThreadHead as WireThreadHead
from pai.protocol.state import RunState as WireRunState
from pai.protocol.text import clean

_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class ToolArguments(Mapping[str, Any]):
    """The parsed arguments of a call of a server tool: `part.input.title` or `part.input["title"]`."""

    __slots__ = ("_arguments",)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = dict(arguments)

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arguments[name]
        except KeyError:
            raise AttributeError(f"the call has no argument {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    def __repr__(self) -> str:
        return f"ToolArguments({self._arguments!r})"


class Binding:
    """`agent` None: everything stays JSON."""

    def __init__(self, agent: Agent | None = None) -> None:
        self.agent = agent
        self._kinds: dict[str, ToolKind] = {}
        self._erased = self if agent is None else Binding()

    def erased(self) -> "Binding":
        """For dynamic tools, which no contract knows."""
        return self._erased

    def learn(self, manifest: Mapping[str, Any]) -> None:
        """Takes from a manifest who executes which tool."""
        kinds = {tool["name"]: tool["kind"] for tool in manifest.get("tools", ())}
        self._kinds = {name: ToolKind(kind) for name, kind in kinds.items() if kind in set(ToolKind)}

    def tool_kind(self, tool_name: str) -> ToolKind | None:
        """None when neither the contract nor a manifest that was read says."""
        tool = self._tool(tool_name)
        return self._kinds.get(tool_name) if tool is None else tool.kind

    def message_metadata(self, value: Any) -> Any:
        return value if self.agent is None else _read(self.agent.message_metadata.schema, value)

    def head(self, wire: WireThreadHead) -> PaiThreadHead:
        schema = None if self.agent is None else self.agent.thread_metadata.schema
        fields = {**wire.__dict__, "metadata": _read(schema, wire.metadata)}
        return PaiThreadHead.model_construct(wire.model_fields_set, **fields)

    def run(self, wire: WireRunState) -> RunState:
        schema = None if self.agent is None else self.agent.run_metadata.schema
        fields = {**wire.__dict__, "metadata": _read(schema, wire.metadata)}
        return RunState.model_construct(wire.model_fields_set, **fields)

    def data(self, name: str, value: Any) -> Any:
        return value if self.agent is None else _read(self.agent.ui_data.get(name), value)

    def tool_input(self, tool_name: str, value: Any) -> Any:
        tool = self._tool(tool_name)
        if tool is None:
            return value
        if tool.signature is None:
            return _read(tool.input, value)
        try:
            return ToolArguments(arguments_of(tool.signature, tool.input.parse(value)))
        except ValidationFailed:
            return value

    def tool_output(self, tool_name: str, value: Any) -> Any:
        tool = self._tool(tool_name)
        return value if tool is None or value is None else _read(tool.output, value)

    def tool_data(self, tool_name: str, name: str, value: Any) -> Any:
        tool = self._tool(tool_name)
        declared = None if tool is None else tool.data.get(name)
        return value if declared is None else _read(declared.schema, value)

    def suspension_input(self, tool_name: str, name: str, value: Any) -> Any:
        tool = self._tool(tool_name)
        declared = None if tool is None else tool.suspensions.get(name)
        return value if declared is None else _read(declared.input, value)

    def suspension_resume(self, tool_name: str, name: str, value: Any) -> Any:
        tool = self._tool(tool_name)
        declared = None if tool is None or value is None else tool.suspensions.get(name)
        return value if declared is None else _read(declared.resume, value)

    def command_output(self, name: str, value: Any) -> Any:
        command = None if self.agent is None else self.agent.commands.get(name)
        return value if command is None else _read(command.output, value)

    def _tool(self, tool_name: str) -> Tool | None:
        return None if self.agent is None else self.agent.tools.get(tool_name)


def to_json(value: Any, *, at: str) -> Any:
    """Clean JSON of what a caller gave: JSON itself is not touched, models and dataclasses become what they declare.

    Raises ValidationFailed.
    """
    try:
        plain = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
        try:
            return clean(plain)
        except ValidationFailed:
            # Dataclasses, dates, sets and models inside of containers; NaN and the like stay what they are and fail.
            return clean(_ANY.dump_python(plain, mode="json", by_alias=True))
    except (ValidationFailed, PydanticSerializationError, ValueError, RecursionError) as error:
        reason = error.detail if isinstance(error, ValidationFailed) else str(error)
        raise ValidationFailed.at(at, f"is not JSON ({reason})") from None


def _read(schema: Schema | None, value: Any) -> Any:
    if schema is None:
        return value
    try:
        return schema.parse(value)
    except ValidationFailed:
        return value
