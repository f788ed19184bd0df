"""What a client is told about an agent."""

import hashlib
from typing import Any

from pai.contract.agent import Agent
from pai.contract.tool import Tool
from pai.protocol.json import dumps

PROTOCOL = {"version": 1, "chunks": "ai-sdk@7.0.173"}


def manifest(agent: Agent) -> dict[str, Any]:
    """The manifest as plain JSON. Private metadata is never in it, and what is not declared is absent."""
    declared = {
        "messageMetadata": agent.message_metadata.schema,
        "threadMetadata": agent.thread_metadata.schema,
        "runMetadata": agent.run_metadata.schema,
        "clientData": agent.client_data,
    }
    return {
        "agent": agent.name,
        "protocol": dict(PROTOCOL),
        "tools": [_tool(tool) for tool in agent.tools.values()],
        "commands": [
            {
                "name": command.name,
                "inputSchema": command.input.json_schema,
                "outputSchema": command.output.output_json_schema,
            }
            for command in agent.commands.values()
        ],
        "uiData": {name: schema.output_json_schema for name, schema in agent.ui_data.items()},
        **{key: schema.json_schema for key, schema in declared.items() if schema is not None},
    }


def listing(agent: Agent) -> dict[str, Any]:
    """One entry of the list of agents."""
    about = {"title": agent.title, "description": agent.description}
    return {"agent": agent.name, **{key: text for key, text in about.items() if text is not None}}


def manifest_hash(agent: Agent) -> str:
    """Changes when the manifest does: an entity tag."""
    return hashlib.sha256(dumps(manifest(agent))).hexdigest()[:32]


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "kind": tool.kind.value,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "suspensions": [
            {
                "name": suspension.name,
                "inputSchema": suspension.input.output_json_schema,
                "resumeSchema": suspension.resume.json_schema,
            }
            for suspension in tool.suspensions.values()
        ],
        "data": [
            {"name": name, "schema": data.schema.json_schema, "clientWritable": data.client_writable}
            for name, data in tool.data.items()
        ],
    }
