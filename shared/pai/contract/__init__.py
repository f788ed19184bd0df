"""What an agent is: its declaration, checked at import, and the records that the tiers and the client read from it."""

from pai.contract.agent import Agent
from pai.contract.child_thread import ChildResult, ChildThread
from pai.contract.client_tools import ClientToolDefinitionSnapshot, check_client_tools
from pai.contract.command import Command, CommandContext, ThreadAccess
from pai.contract.contained import Suspended, contained, in_thread
from pai.contract.context import Effects, ToolContext
from pai.contract.errors import (
    ChangedSinceSuspension,
    ClientToolsRefused,
    OutcomeUnknown,
    ThreadsTooDeep,
    ToolError,
    ToolInputInvalid,
    ToolOutputInvalid,
    Undeclared,
)
from pai.contract.json_schema import JsonSchema
from pai.contract.manifest import listing, manifest, manifest_hash
from pai.contract.registry import Registry
from pai.contract.rehearsal import Rehearsal
from pai.contract.run_context import ModelTask, PendingAction, RunContext, RunOutcome, StepPreparation
from pai.contract.schema import Schema, TypeSchema
from pai.contract.signature import invoke
from pai.contract.suspension import Suspension
from pai.contract.tool import Tool, ToolData, ToolKind
from pai.contract.trigger import Trigger, TriggerContext, TriggerInput

__all__ = [
    "Agent",
    "ChangedSinceSuspension",
    "ChildResult",
    "ChildThread",
    "ClientToolDefinitionSnapshot",
    "ClientToolsRefused",
    "Command",
    "CommandContext",
    "Effects",
    "JsonSchema",
    "ModelTask",
    "OutcomeUnknown",
    "PendingAction",
    "Registry",
    "Rehearsal",
    "RunContext",
    "RunOutcome",
    "Schema",
    "StepPreparation",
    "Suspended",
    "Suspension",
    "ThreadAccess",
    "ThreadsTooDeep",
    "Tool",
    "ToolContext",
    "ToolData",
    "ToolError",
    "ToolInputInvalid",
    "ToolKind",
    "ToolOutputInvalid",
    "Trigger",
    "TriggerContext",
    "TriggerInput",
    "TypeSchema",
    "Undeclared",
    "check_client_tools",
    "contained",
    "in_thread",
    "invoke",
    "listing",
    "manifest",
    "manifest_hash",
]
