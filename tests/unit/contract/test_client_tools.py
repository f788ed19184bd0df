"""Client tools that come with a request."""

from typing import Any

import pytest
from pydantic import BaseModel

from pai import Agent
from pai.contract import ClientToolsRefused, ToolKind, check_client_tools
from pai.protocol.errors import ValidationFailed


class Draft(BaseModel):
    title: str


def snapshot(name: str = "pick_colour", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Pick a colour.",
        "inputSchema": {"type": "object", "properties": {"hint": {"type": "string"}}},
        "outputSchema": {"enum": ["red", "blue"]},
        **changes,
    }


@pytest.fixture
def agent() -> Agent:
    agent = Agent("main", model="demo")
    agent.client_tool("own", input=Draft)
    return agent


def test_a_snapshot_becomes_a_dynamic_client_tool(agent: Agent) -> None:
    data_schemas = {"preview": {"type": "string"}}
    tool = check_client_tools(agent, [snapshot(dataSchemas=data_schemas, extra="ignored")])["pick_colour"]
    assert (tool.kind, tool.dynamic, tool.description) == (ToolKind.client, True, "Pick a colour.")
    assert tool.input_schema == snapshot()["inputSchema"]
    assert tool.output_schema == {"enum": ["red", "blue"]}
    assert tool.data["preview"].client_writable
    assert tool.action_name() == "pick_colour.output"
    assert tool.validate_output("red") == "red"
    with pytest.raises(ValidationFailed):
        tool.validate_output("green")
    with pytest.raises(ValidationFailed):
        tool.validate_input({"hint": 1})


@pytest.mark.parametrize(
    ("snapshots", "path"),
    [
        ([snapshot("own")], "clientTools.0.name"),
        ([snapshot(), snapshot()], "clientTools.1.name"),
        ([snapshot("no name")], "clientTools.0.name"),
        ([snapshot(""), snapshot()], "clientTools.0.name"),
        ([snapshot(description="x" * 10_001)], "clientTools.0.description"),
        ([snapshot(description=None)], "clientTools.0.description"),
        ([snapshot(inputSchema=True)], "clientTools.0.inputSchema"),
        ([snapshot(inputSchema={"type": "string"})], "clientTools.0.inputSchema"),
        ([snapshot(inputSchema={"type": "object", "$ref": "https://example.com"})], "clientTools.0.inputSchema"),
        ([snapshot(outputSchema="string")], "clientTools.0.outputSchema"),
        ([snapshot(), snapshot("b", outputSchema={"type": "x"})], "clientTools.1.outputSchema"),
        ([snapshot(dataSchemas={"a:b": {}})], "clientTools.0.dataSchemas"),
        ([snapshot(dataSchemas={"a": {"type": "x"}})], "clientTools.0.dataSchemas.a"),
        ([snapshot(dataSchemas={f"d{n}": {} for n in range(33)})], "clientTools.0.dataSchemas"),
        ([{"name": "a"}], "clientTools.0.description"),
        (["text"], "clientTools.0"),
        ([snapshot(f"t{n}") for n in range(65)], "clientTools"),
    ],
)
def test_a_bad_snapshot_is_refused_with_its_path(agent: Agent, snapshots: Any, path: str) -> None:
    with pytest.raises(ClientToolsRefused) as caught:
        check_client_tools(agent, snapshots)
    assert path in [error.path for error in caught.value.errors]
    assert caught.value.code == "validation_failed"


def test_the_limits_can_be_set(agent: Agent) -> None:
    assert len(check_client_tools(agent, [snapshot(f"t{n}") for n in range(65)], max_tools=65)) == 65
    with pytest.raises(ClientToolsRefused, match="at most 40 bytes"):
        check_client_tools(agent, [snapshot()], max_schema_bytes=40)
