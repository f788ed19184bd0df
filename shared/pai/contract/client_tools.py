"""Client tools that come as snapshots with a request: what an untrusted caller adds to an agent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, JsonValue, ValidationError

from pai.contract.errors import ClientToolsRefused
from pai.contract.json_schema import MAX_SCHEMA_BYTES, JsonSchema
from pai.contract.names import NAME_RULE, is_name
from pai.contract.schema import dotted
from pai.contract.tool import Tool, ToolData, ToolKind
from pai.protocol.errors import FieldError, ValidationFailed
from pai.protocol.field_errors import field_message
from pai.protocol.wire import WireModel

if TYPE_CHECKING:
    from pai.contract.agent import Agent

MAX_CLIENT_TOOLS = 64
MAX_DESCRIPTION = 10_000
MAX_DATA_SCHEMAS = 32


class ClientToolDefinitionSnapshot(WireModel):
    """A client tool as JSON: its name, what it does, and JSON Schemas for input, output and tool data."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str
    description: str
    input_schema: JsonValue
    output_schema: JsonValue
    data_schemas: dict[str, JsonValue] | None = None

    def tool(self, *, at: str = "", max_schema_bytes: int = MAX_SCHEMA_BYTES) -> Tool:
        """Raises ValidationFailed for a bad name, and for schemas that are none or could do harm."""
        if not is_name(self.name):
            raise ValidationFailed.at(dotted(at, ["name"]), f"a name has {NAME_RULE}")
        if len(self.description) > MAX_DESCRIPTION:
            raise ValidationFailed.at(dotted(at, ["description"]), f"has more than {MAX_DESCRIPTION} characters")
        given = self.input_schema
        if not isinstance(given, dict) or given.get("type") != "object":
            raise ValidationFailed.at(dotted(at, ["inputSchema"]), 'must be of an object: {"type": "object", ...}')
        return Tool(
            name=self.name,
            kind=ToolKind.client,
            description=self.description,
            input=JsonSchema(given, at=dotted(at, ["inputSchema"]), max_bytes=max_schema_bytes),
            output=JsonSchema(self.output_schema, at=dotted(at, ["outputSchema"]), max_bytes=max_schema_bytes),
            data=self._data(at=dotted(at, ["dataSchemas"]), max_schema_bytes=max_schema_bytes),
            dynamic=True,
        )

    def _data(self, *, at: str, max_schema_bytes: int) -> dict[str, ToolData]:
        schemas = self.data_schemas or {}
        if len(schemas) > MAX_DATA_SCHEMAS:
            raise ValidationFailed.at(at, f"has more than {MAX_DATA_SCHEMAS} entries")
        for name in schemas:
            if not is_name(name):
                raise ValidationFailed.at(at, f"{name[:100]!r} is no name: a name has {NAME_RULE}")
        return {
            name: ToolData(JsonSchema(schema, at=dotted(at, [name]), max_bytes=max_schema_bytes), client_writable=True)
            for name, schema in schemas.items()
        }


def check_client_tools(
    agent: "Agent",
    snapshots: Sequence[Mapping[str, Any]],
    *,
    at: str = "clientTools",
    max_tools: int = MAX_CLIENT_TOOLS,
    max_schema_bytes: int = MAX_SCHEMA_BYTES,
) -> dict[str, Tool]:
    """The snapshots of a request as tools by name.

    Raises ClientToolsRefused with all that is wrong: malformed snapshots, names that are taken by the agent's own tools
    or used twice, schemas beyond the limits.
    """
    if len(snapshots) > max_tools:
        raise ClientToolsRefused([FieldError(path=at, message=f"more than {max_tools} client tools")])
    tools: dict[str, Tool] = {}
    errors: list[FieldError] = []
    for index, snapshot in enumerate(snapshots):
        path = dotted(at, [index])
        try:
            tool = ClientToolDefinitionSnapshot.read(snapshot).tool(at=path, max_schema_bytes=max_schema_bytes)
        except ValidationError as error:
            errors += [
                FieldError(path=dotted(path, problem["loc"]), message=field_message(problem))
                for problem in error.errors(include_url=False, include_input=False)
            ]
            continue
        except ValidationFailed as error:
            errors += error.errors
            continue
        if tool.name in agent.tools:
            errors.append(FieldError(path=f"{path}.name", message=f"the agent has a tool {tool.name!r} of its own"))
        elif tool.name in tools:
            errors.append(FieldError(path=f"{path}.name", message=f"{tool.name!r} is there twice"))
        else:
            tools[tool.name] = tool
    if errors:
        raise ClientToolsRefused(errors)
    return tools
