"""What the engine knows of a language model: a request goes in, chunks come out, and a result is left at the end.

Nothing here names a provider or a library, so that an adapter can be replaced without touching the engine.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from pai.protocol.usage import UsageSummary

Chunk = dict[str, Any]
"""One AI SDK UIMessageChunk with the wire's keys."""


LoadFile = Callable[[str], Awaitable[tuple[bytes, str]]]
"""A file id to its bytes and media type. Raises NotFound for what cannot be read, or is too much for one call."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Where a generated file can be seen, and its id when it can be read again by it."""

    url: str
    file_id: str | None = None


StoreFile = Callable[[bytes, str], Awaitable[StoredFile]]
"""The bytes and media type of a file that a model made, to where it was stored."""


class FinishReason(StrEnum):
    stop = "stop"
    length = "length"
    content_filter = "content-filter"
    tool_calls = "tool-calls"
    error = "error"
    other = "other"


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool the model may call.

    `dynamic` marks tools that came with a request: their chunks carry `dynamic: true`. Such tools are never sent as
    strict, because providers refuse most schemas in strict mode.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    strict: bool | None = None
    dynamic: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One model call.

    `messages` are stored UIMessages, reserved `data-pai-*` parts included, in canonical order. `used_call_ids` are the
    tool call and reasoning ids already used in the run: ids of this step will differ from them.
    `settings` are provider settings (`temperature`, `max_tokens` ...), passed on as they are; `native_tools` among them
    lists tools that the provider runs itself (`"web_search"`, or `{"kind": "web_search", ...}`).
    Without `load_file` attachments are only mentioned, without `store_file` generated files become data URIs.
    """

    messages: Sequence[Mapping[str, Any]]
    message_id: str
    run_id: str
    instructions: str | None = None
    tools: Sequence[ToolDefinition] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    used_call_ids: frozenset[str] = frozenset()
    load_file: LoadFile | None = None
    store_file: StoreFile | None = None


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """What is known once the stream has ended.

    `suspended`: the provider paused its turn and wants to be called again at once with this message last.
    `diagnostics` has the keys of a message's diagnostics record: `model`, `provider`, `finishReason`, `warnings`.
    """

    usage: UsageSummary
    finish_reason: FinishReason
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    suspended: bool = False


class ModelStream(Protocol):
    """The parts of one step as chunks: text, reasoning, tool input, sources, files.

    Never `start`, `start-step`, `finish-step` or `finish`; every text and reasoning part that was started is ended.
    Raises ModelError. Cancelling the task that iterates closes the provider's connection.
    """

    def __aiter__(self) -> AsyncIterator[Chunk]: ...

    async def __anext__(self) -> Chunk: ...

    @property
    def usage(self) -> UsageSummary:
        """What the provider has reported so far; also after a failure or a cancellation."""
        ...

    @property
    def result(self) -> ModelResult:
        """Raises RuntimeError before the stream has ended."""
        ...


@runtime_checkable
class Model(Protocol):
    """A model that can be called any number of times, also concurrently, on one event loop."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        """Open the call. Raises ModelError on entry or while iterating."""
        ...
