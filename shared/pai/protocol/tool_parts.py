"""A tool call as a part of a stored message: seven states, each with keys that must, may and must not be there."""

from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, BeforeValidator, with_config
from typing_extensions import TypedDict

from pai.protocol.content_chunks import STRIPPED, ProviderMetadata, ToolMetadata


class ToolState(StrEnum):
    """The native state of a tool part. PAI adds none: waiting and cancelled are derived from sidecars."""

    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


TERMINAL_TOOL_STATES = frozenset({ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED})


def is_settled(part: dict[str, Any]) -> bool:
    """Whether a tool part has its final result; a preliminary output is none."""
    return part.get("state") in TERMINAL_TOOL_STATES and part.get("preliminary") is not True


def _forbid(value: Any) -> Any:
    raise ValueError("must not be there in this state")


def _tool_type(value: str) -> str:
    if not value.startswith("tool-"):
        raise ValueError("must start with 'tool-'")
    return value


def _exactly(wanted: bool) -> AfterValidator:
    def check(value: bool) -> bool:
        if value is not wanted:
            raise ValueError(f"must be {str(wanted).lower()}")
        return value

    return AfterValidator(check)


Forbidden = Annotated[Any, BeforeValidator(_forbid)]
"""Its presence is the error, also as null."""
StaticType = Annotated[str, AfterValidator(_tool_type)]
Granted = Annotated[bool, _exactly(True)]
Denied = Annotated[bool, _exactly(False)]


class _ApprovalBase(TypedDict):
    id: str
    descriptor: NotRequired[Any]
    requestReason: NotRequired[str]
    isAutomatic: NotRequired[bool]
    signature: NotRequired[str]
    inputSchemaInput: NotRequired[Any]


@with_config(STRIPPED)
class ApprovalRequested(_ApprovalBase):
    approved: NotRequired[Forbidden]
    reason: NotRequired[Forbidden]


@with_config(STRIPPED)
class ApprovalResponded(_ApprovalBase):
    """`reason` is that of the answer, `requestReason` that of the request."""

    approved: bool
    reason: NotRequired[str]


@with_config(STRIPPED)
class ApprovalGranted(_ApprovalBase):
    approved: Granted
    reason: NotRequired[str]


@with_config(STRIPPED)
class ApprovalDenied(_ApprovalBase):
    approved: Denied
    reason: NotRequired[str]


class _Call(TypedDict):
    toolCallId: str
    title: NotRequired[str]
    toolMetadata: NotRequired[ToolMetadata]
    providerExecuted: NotRequired[bool]
    callProviderMetadata: NotRequired[ProviderMetadata]


class _Unanswered(_Call):
    output: NotRequired[Forbidden]
    errorText: NotRequired[Forbidden]


class _InputStreaming(_Unanswered):
    state: Literal["input-streaming"]
    input: NotRequired[Any]
    rawInput: NotRequired[str]
    inputEncoding: NotRequired[Literal["json", "text"]]
    approval: NotRequired[Forbidden]


class _InputAvailable(_Unanswered):
    state: Literal["input-available"]
    input: Any
    approval: NotRequired[Forbidden]


class _ApprovalRequestedCall(_Unanswered):
    state: Literal["approval-requested"]
    input: Any
    approval: ApprovalRequested


class _ApprovalRespondedCall(_Unanswered):
    state: Literal["approval-responded"]
    input: Any
    approval: ApprovalResponded


class _OutputAvailable(_Call):
    state: Literal["output-available"]
    input: Any
    output: Any
    errorText: NotRequired[Forbidden]
    preliminary: NotRequired[bool]
    resultProviderMetadata: NotRequired[ProviderMetadata]
    approval: NotRequired[ApprovalGranted]


class _OutputError(_Call):
    state: Literal["output-error"]
    input: NotRequired[Any]
    rawInput: NotRequired[Any]
    output: NotRequired[Forbidden]
    errorText: str
    resultProviderMetadata: NotRequired[ProviderMetadata]
    approval: NotRequired[ApprovalGranted]


class _OutputDenied(_Unanswered):
    state: Literal["output-denied"]
    input: Any
    approval: ApprovalDenied


class _Static(TypedDict):
    type: StaticType


class _Dynamic(TypedDict):
    """`dynamic: false` marks a call that was static until its tool disappeared."""

    type: Literal["dynamic-tool"]
    toolName: str
    dynamic: NotRequired[Denied]


# fmt: off
@with_config(STRIPPED)
class StaticInputStreaming(_Static, _InputStreaming): ...
@with_config(STRIPPED)
class StaticInputAvailable(_Static, _InputAvailable): ...
@with_config(STRIPPED)
class StaticApprovalRequested(_Static, _ApprovalRequestedCall): ...
@with_config(STRIPPED)
class StaticApprovalResponded(_Static, _ApprovalRespondedCall): ...
@with_config(STRIPPED)
class StaticOutputAvailable(_Static, _OutputAvailable): ...
@with_config(STRIPPED)
class StaticOutputError(_Static, _OutputError): ...
@with_config(STRIPPED)
class StaticOutputDenied(_Static, _OutputDenied): ...
@with_config(STRIPPED)
class DynamicInputStreaming(_Dynamic, _InputStreaming): ...
@with_config(STRIPPED)
class DynamicInputAvailable(_Dynamic, _InputAvailable): ...
@with_config(STRIPPED)
class DynamicApprovalRequested(_Dynamic, _ApprovalRequestedCall): ...
@with_config(STRIPPED)
class DynamicApprovalResponded(_Dynamic, _ApprovalRespondedCall): ...
@with_config(STRIPPED)
class DynamicOutputAvailable(_Dynamic, _OutputAvailable): ...
@with_config(STRIPPED)
class DynamicOutputError(_Dynamic, _OutputError): ...
@with_config(STRIPPED)
class DynamicOutputDenied(_Dynamic, _OutputDenied): ...
# fmt: on

StaticToolPart = (
    StaticInputStreaming
    | StaticInputAvailable
    | StaticApprovalRequested
    | StaticApprovalResponded
    | StaticOutputAvailable
    | StaticOutputError
    | StaticOutputDenied
)
DynamicToolPart = (
    DynamicInputStreaming
    | DynamicInputAvailable
    | DynamicApprovalRequested
    | DynamicApprovalResponded
    | DynamicOutputAvailable
    | DynamicOutputError
    | DynamicOutputDenied
)
ToolPart = StaticToolPart | DynamicToolPart
