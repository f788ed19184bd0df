"""Talk to agents: over HTTP, or in the same process.

client = create_agent_client(create_http_transport("http://localhost:8000/api/pai/main"))
thread = client.thread(client.new_thread_id())
run = await thread.send("hello")
state = await run.wait_until_idle()
"""

from pai.client.actions import ActionOrigin, PendingActionView
from pai.client.agent_client import AgentClient, create_agent_client
from pai.client.backoff import BackoffSettings
from pai.client.binding import ToolArguments
from pai.client.collection import ThreadCollectionClient
from pai.client.commands import ThreadCommands
from pai.client.connection import ConnectionState
from pai.client.direct_transport import create_direct_transport
from pai.client.facts import AdminFacts, InputFacts, LifecycleFacts, ModelFacts, PaiMessageFacts, PendingFacts
from pai.client.files import (
    CreateFileUrlInput,
    FilesClient,
    FileUploadInput,
    FileUrlResult,
    ReadFileInput,
    StoredFileBody,
    UploadedFile,
)
from pai.client.heads import HeadsWatch, ThreadHeadChanged, ThreadHeadRemoved, ThreadHeadWatchEvent
from pai.client.http import HttpTransport, create_http_transport
from pai.client.inputs import ClientSendInput, SendAttachmentInput, SendQueue, SendQueueKeys
from pai.client.messages import (
    MessageMetadata,
    PaiCanonicalMessage,
    PaiMessage,
    PaiPendingInputMessage,
    PaiQueuedMessage,
    PendingMetadata,
    is_optimistic_input_message,
)
from pai.client.part_types import PaiMessagePart
from pai.client.parts import (
    CustomPart,
    FilePart,
    PaiAttachmentPart,
    PaiDataPart,
    PaiReasoningPart,
    Part,
    ReasoningFilePart,
    SourceDocumentPart,
    SourceUrlPart,
    SteeringMessagePart,
    StepStartPart,
    TextPart,
    is_pai_attachment_part,
    is_pai_data_part,
)
from pai.client.records import PaiThreadHead, RunState
from pai.client.request_context import ClientTools, RequestContext, ThreadHandleOptions
from pai.client.run import RunHandle
from pai.client.runtime_client import (
    LifecycleMessage,
    RuntimeAgentClient,
    RuntimeMetadataClient,
    RuntimeThread,
    RuntimeThreadCollection,
    RuntimeThreadMessageClient,
    RuntimeTriggerClient,
    create_runtime_client,
    create_runtime_direct_transport,
)
from pai.client.runtime_http import RuntimeHttpTransport, create_runtime_http_transport
from pai.client.runtime_transport import AllThreadsOptions, RuntimeClientTransport
from pai.client.server import AgentListing, PaiHttpClient, create_pai_http_client
from pai.client.thread import Thread
from pai.client.thread_state import (
    ActionResult,
    QueuedItemView,
    ThreadCapabilityView,
    ThreadQueueView,
    ThreadState,
)
from pai.client.tool_parts import (
    PaiDynamicToolPart,
    PaiStaticToolPart,
    PaiSuspensionView,
    PaiToolDataView,
    PaiToolErrorView,
    PaiToolPart,
    ToolState,
    is_pai_tool_part,
)
from pai.client.transport import (
    AgentClientTransport,
    Position,
    ThreadHeadWatchInput,
    ThreadListOptions,
    ThreadWatchInput,
    WatchesThreadHeads,
    WatchesThreads,
)
from pai.client.watch import StateWatch
from pai.contract.client_tools import ClientToolDefinitionSnapshot
from pai.fold.reserved import SuspensionState
from pai.protocol.requests import (
    ActionError,
    AttachmentPartInput,
    FilePartInput,
    PendingActionRef,
    SendQueueOptions,
    TextPartInput,
    ThreadCreation,
    UserMessageInput,
    UserMessagePartInput,
)
from pai.protocol.state import (
    MessageDiagnosticsRecord,
    RunStatus,
    ThreadErrorRecord,
    ThreadListResult,
    ThreadStatus,
    ThreadSummary,
    ThreadTitleRecord,
)
from pai.protocol.trusted import MetadataRecord, Visibility
from pai.protocol.usage import UsageSummary, add_usage, empty_usage, has_usage

__all__ = [
    "ActionError",
    "ActionOrigin",
    "ActionResult",
    "AdminFacts",
    "AgentClient",
    "AgentClientTransport",
    "AgentListing",
    "AllThreadsOptions",
    "AttachmentPartInput",
    "BackoffSettings",
    "ClientSendInput",
    "ClientToolDefinitionSnapshot",
    "ClientTools",
    "ConnectionState",
    "CreateFileUrlInput",
    "CustomPart",
    "FilePart",
    "FilePartInput",
    "FileUploadInput",
    "FileUrlResult",
    "FilesClient",
    "HeadsWatch",
    "HttpTransport",
    "InputFacts",
    "LifecycleFacts",
    "LifecycleMessage",
    "MessageDiagnosticsRecord",
    "MessageMetadata",
    "MetadataRecord",
    "ModelFacts",
    "PaiAttachmentPart",
    "PaiCanonicalMessage",
    "PaiDataPart",
    "PaiDynamicToolPart",
    "PaiHttpClient",
    "PaiMessage",
    "PaiMessageFacts",
    "PaiMessagePart",
    "PaiPendingInputMessage",
    "PaiQueuedMessage",
    "PaiReasoningPart",
    "PaiStaticToolPart",
    "PaiSuspensionView",
    "PaiThreadHead",
    "PaiToolDataView",
    "PaiToolErrorView",
    "PaiToolPart",
    "Part",
    "PendingActionRef",
    "PendingActionView",
    "PendingFacts",
    "PendingMetadata",
    "Position",
    "QueuedItemView",
    "ReadFileInput",
    "ReasoningFilePart",
    "RequestContext",
    "RunHandle",
    "RunState",
    "RunStatus",
    "RuntimeAgentClient",
    "RuntimeClientTransport",
    "RuntimeHttpTransport",
    "RuntimeMetadataClient",
    "RuntimeThread",
    "RuntimeThreadCollection",
    "RuntimeThreadMessageClient",
    "RuntimeTriggerClient",
    "SendAttachmentInput",
    "SendQueue",
    "SendQueueKeys",
    "SendQueueOptions",
    "SourceDocumentPart",
    "SourceUrlPart",
    "StateWatch",
    "SteeringMessagePart",
    "StepStartPart",
    "StoredFileBody",
    "SuspensionState",
    "TextPart",
    "TextPartInput",
    "Thread",
    "ThreadCapabilityView",
    "ThreadCollectionClient",
    "ThreadCommands",
    "ThreadCreation",
    "ThreadErrorRecord",
    "ThreadHandleOptions",
    "ThreadHeadChanged",
    "ThreadHeadRemoved",
    "ThreadHeadWatchEvent",
    "ThreadHeadWatchInput",
    "ThreadListOptions",
    "ThreadListResult",
    "ThreadQueueView",
    "ThreadState",
    "ThreadStatus",
    "ThreadSummary",
    "ThreadTitleRecord",
    "ThreadWatchInput",
    "ToolArguments",
    "ToolState",
    "UploadedFile",
    "UsageSummary",
    "UserMessageInput",
    "UserMessagePartInput",
    "Visibility",
    "WatchesThreadHeads",
    "WatchesThreads",
    "add_usage",
    "create_agent_client",
    "create_direct_transport",
    "create_http_transport",
    "create_pai_http_client",
    "create_runtime_client",
    "create_runtime_direct_transport",
    "create_runtime_http_transport",
    "empty_usage",
    "has_usage",
    "is_optimistic_input_message",
    "is_pai_attachment_part",
    "is_pai_data_part",
    "is_pai_tool_part",
]
