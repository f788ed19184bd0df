"""Requests and results of the HTTP API, shared by the server, the client and the direct transport."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pai.protocol.ids import ID_PATTERN, ID_RULE, is_id
from pai.protocol.state import QueuedItem, QueueMode, RunState
from pai.protocol.text import clean_text
from pai.protocol.wire import WireModel


def _checked_id(value: str) -> str:
    if not is_id(value):
        raise ValueError(ID_RULE)
    return value


Id = Annotated[str, AfterValidator(_checked_id), WithJsonSchema({"type": "string", "pattern": ID_PATTERN})]

# The texts of bodies are clean when they come; programs make requests, too.
_Text = Annotated[str, BeforeValidator(lambda value: clean_text(value) if type(value) is str else value)]

MAX_TITLE = 200


class _Input(WireModel):
    """A request: unknown keys are refused, so that a misspelt option is never silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TextPartInput(_Input):
    type: Literal["text"]
    text: str


class FilePartInput(_Input):
    type: Literal["file"]
    url: Annotated[str, Field(min_length=1)]
    media_type: Annotated[str, Field(min_length=1)]
    filename: str | None = None
    provider_metadata: dict[str, dict[str, Any]] | None = None


class AttachmentPartInput(_Input):
    type: Literal["attachment"]
    file_id: Id


UserMessagePartInput = Annotated[TextPartInput | FilePartInput | AttachmentPartInput, Field(discriminator="type")]


class UserMessageInput(_Input):
    """What a person says: at least one part."""

    parts: Annotated[list[UserMessagePartInput], Field(min_length=1, max_length=1000)]
    metadata: dict[str, Any] | None = None


class SendQueueOptions(_Input):
    mode: QueueMode
    merge: Literal["none", "last"] = "none"


class ThreadCreation(_Input):
    """Only read when the send creates the thread."""

    title: Annotated[_Text, Field(min_length=1, max_length=MAX_TITLE)] | None = None
    category: Annotated[_Text, Field(min_length=1, max_length=200)] | None = None
    parent_thread_id: Id | None = None
    metadata: dict[str, Any] | None = None


class _Contextual(_Input):
    client_data: Any = None
    client_tools: list[dict[str, Any]] | None = None


class SendRequest(_Contextual):
    message: UserMessageInput
    message_id: Id | None = None
    queue: SendQueueOptions | None = None
    thread: ThreadCreation | None = None


class RegenerateRequest(_Contextual):
    """Exactly one of `message_id` (with an optional replacement) and `run_id`."""

    message_id: Id | None = None
    replacement: UserMessageInput | None = None
    run_id: Id | None = None


class StopThreadRequest(_Input):
    reason: Annotated[_Text, Field(max_length=2000)] | None = None
    continue_with: Literal["none", "steer", "all"] = "none"


class StopRunRequest(_Input):
    reason: Annotated[_Text, Field(max_length=2000)] | None = None


class PendingActionRef(_Input):
    """All but `suspend_name` are required and must match exactly."""

    kind: Literal["tool"]
    thread_id: Id
    tool_name: str
    suspend_name: str | None = None
    message_id: Id
    tool_call_id: Annotated[str, Field(min_length=1, max_length=200)]
    run_id: Id
    action_id: Annotated[str, Field(min_length=1, max_length=200)]
    name: str


class ActionError(_Input):
    message: Annotated[_Text, Field(min_length=1, max_length=10_000)]
    code: Annotated[_Text, Field(min_length=1, max_length=200)] | None = None
    detail: Any = None


class SubmitResponse(_Input):
    nullable: ClassVar[frozenset[str]] = frozenset({"payload"})

    type: Literal["submit"]
    payload: Any


class CancelResponse(_Input):
    type: Literal["cancel"]
    reason: Annotated[_Text, Field(max_length=2000)] | None = None


class FailResponse(_Input):
    type: Literal["fail"]
    error: ActionError


class ActionRequest(_Contextual):
    ref: PendingActionRef
    response_id: Id | None = None
    response: Annotated[SubmitResponse | CancelResponse | FailResponse, Field(discriminator="type")]


class ToolDataRequest(_Contextual):
    nullable: ClassVar[frozenset[str]] = frozenset({"value"})

    message_id: Id
    tool_call_id: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    value: Any


class RenameRequest(_Input):
    title: Annotated[_Text, Field(min_length=1, max_length=MAX_TITLE)]


class CommandRequest(_Input):
    input: Any = None
    client_data: Any = None


class CommandResult(WireModel):
    """What a command returned."""

    nullable: ClassVar[frozenset[str]] = frozenset({"output"})

    output: Any = None


class TriggerRequest(_Input):
    """Fire a trigger by call."""

    thread_id: Id | None = None
    input: Any = None
    queue: SendQueueOptions | None = None
    client_data: Any = None


class MutationResult(WireModel):
    """What a mutation answers: a client has caught up when its watch holds `revision`.

    `run`: the run that was created, resumed, stopped or recalled. `cancelled`: queued inputs that a stop dropped.
    """

    run: RunState | None = None
    message_ids: list[str] | None = None
    queue_item_id: str | None = None
    cancelled: list[QueuedItem] | None = None
    version: str
    revision: int
