"""The chunks about tool calls: input as it streams, approval, output."""

from typing import Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from pai.protocol.content_chunks import LOOSE, ProviderMetadata, ToolMetadata


@with_config(LOOSE)
class ToolInputStartChunk(TypedDict):
    type: Literal["tool-input-start"]
    toolCallId: str
    toolName: str
    dynamic: NotRequired[bool]
    providerExecuted: NotRequired[bool]
    title: NotRequired[str]
    inputEncoding: NotRequired[Literal["json", "text"]]
    providerMetadata: NotRequired[ProviderMetadata]
    toolMetadata: NotRequired[ToolMetadata]


@with_config(LOOSE)
class ToolInputDeltaChunk(TypedDict):
    type: Literal["tool-input-delta"]
    toolCallId: str
    inputTextDelta: str


@with_config(LOOSE)
class ToolInputAvailableChunk(TypedDict):
    type: Literal["tool-input-available"]
    toolCallId: str
    toolName: str
    input: Any
    dynamic: NotRequired[bool]
    providerExecuted: NotRequired[bool]
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]
    toolMetadata: NotRequired[ToolMetadata]


@with_config(LOOSE)
class ToolInputErrorChunk(TypedDict):
    """The call is invalid: its part becomes output-error at once."""

    type: Literal["tool-input-error"]
    toolCallId: str
    toolName: str
    input: Any
    errorText: str
    dynamic: NotRequired[bool]
    providerExecuted: NotRequired[bool]
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]
    toolMetadata: NotRequired[ToolMetadata]


@with_config(LOOSE)
class ToolApprovalRequestChunk(TypedDict):
    type: Literal["tool-approval-request"]
    approvalId: str
    toolCallId: str
    approvalDescriptor: NotRequired[Any]
    inputSchemaInput: NotRequired[Any]
    reason: NotRequired[str]
    isAutomatic: NotRequired[bool]
    signature: NotRequired[str]


@with_config(LOOSE)
class ToolApprovalResponseChunk(TypedDict):
    """The answer to a request, found by its approval id."""

    type: Literal["tool-approval-response"]
    approvalId: str
    approved: bool
    reason: NotRequired[str]
    providerExecuted: NotRequired[bool]
    providerMetadata: NotRequired[ProviderMetadata]


@with_config(LOOSE)
class ToolOutputAvailableChunk(TypedDict):
    type: Literal["tool-output-available"]
    toolCallId: str
    output: Any
    dynamic: NotRequired[bool]
    providerExecuted: NotRequired[bool]
    preliminary: NotRequired[bool]
    providerMetadata: NotRequired[ProviderMetadata]
    toolMetadata: NotRequired[ToolMetadata]


@with_config(LOOSE)
class ToolOutputErrorChunk(TypedDict):
    type: Literal["tool-output-error"]
    toolCallId: str
    errorText: str
    dynamic: NotRequired[bool]
    providerExecuted: NotRequired[bool]
    providerMetadata: NotRequired[ProviderMetadata]
    toolMetadata: NotRequired[ToolMetadata]


@with_config(LOOSE)
class ToolOutputDeniedChunk(TypedDict):
    type: Literal["tool-output-denied"]
    toolCallId: str
