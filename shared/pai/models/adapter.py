"""A pydantic-ai model behind the Model protocol: one request, streamed, with nothing of an agent around it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import direct
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.native_tools import NATIVE_TOOL_TYPES, AbstractNativeTool
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition as PydanticTool

from pai.models.errors import ModelError
from pai.models.failures import cut_off, mapped_errors
from pai.models.generated_files import stored_file
from pai.models.http_responses import closing_responses
from pai.models.loader import load_messages
from pai.models.mapper import StreamMapper
from pai.models.model import Chunk, ModelRequest, ModelResult, ToolDefinition
from pai.models.resolve import ModelOptions
from pai.models.response_facts import Called, response_chunk
from pai.models.stream import GeneratedStream
from pai.models.token_usage import usage_summary


class PydanticAIModel:
    """Calls a pydantic-ai model. `label` names the interface (`openai`, `openai-chat`, `anthropic`, `google` ...).

    `close` is awaited by `aclose`: it closes the HTTP client, when that belongs to this model.
    """

    def __init__(
        self,
        model: PydanticModel[Any],
        *,
        options: ModelOptions | None = None,
        label: str | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._model = model
        self._options = options or ModelOptions()
        self._close = close
        self._called = Called(label=label or _label(model), system=model.system, base_url=model.base_url)

    @property
    def name(self) -> str:
        return self._model.model_name

    @property
    def provider(self) -> str:
        return self._called.label

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[GeneratedStream]:
        opened = GeneratedStream(lambda stream: self._chunks(request, stream))
        try:
            yield opened
        finally:
            await opened.aclose()

    async def _chunks(self, request: ModelRequest, stream: GeneratedStream) -> AsyncGenerator[Chunk, None]:
        history = await load_messages(request.messages, called=self._called, load_file=request.load_file)
        native = _native_tools(request.settings.get("native_tools", ()))
        with mapped_errors(self.provider, self.name):
            async with closing_responses(), self._open(history, request, native) as response:
                _keep_latest_usage(response)
                stream.count(lambda: usage_summary(response.usage, provider=self.provider))
                mapper = StreamMapper(
                    parts=lambda: response.get().parts,
                    tools=request.tools,
                    used_ids=request.used_call_ids,
                    hold_text=self.provider == "openai-chat" or (self.provider == "google" and bool(native)),
                )
                async for event in response:
                    for mapped in mapper.feed(event):
                        yield await stored_file(mapped, request.store_file)
                final = response.get()
            self._check_whole(final)
        for mapped in mapper.end(final):
            yield await stored_file(mapped, request.store_file)
        if final.parts:
            yield response_chunk(final, self._called)
        stream.finish(self._result(final, mapper))

    def _open(self, history: list[ModelMessage], request: ModelRequest, native: list[AbstractNativeTool]) -> Any:
        parameters = ModelRequestParameters(
            function_tools=[_tool(tool) for tool in request.tools],
            native_tools=native,
            instruction_parts=[InstructionPart(content=request.instructions)] if request.instructions else [],
        )
        settings: dict[str, Any] = {
            "max_retries": 0,
            "timeout": self._options.read_timeout.total_seconds(),
            "first_event_timeout": self._options.first_event_timeout.total_seconds(),
            "request_timeout": self._options.request_timeout.total_seconds(),
            **{name: value for name, value in request.settings.items() if name != "native_tools"},
        }
        return direct.model_request_stream(
            self._model,
            history,
            model_settings=ModelSettings(**settings),  # type: ignore[typeddict-item]  # the caller's, checked by nobody
            model_request_parameters=parameters,
            instrument=False,
        )

    def _check_whole(self, response: ModelResponse) -> None:
        """Raises ModelError when the stream stopped without an end: providers say why they stop."""
        details = response.provider_details or {}
        said_why = "finish_reason" in details or "refusal" in details or response.finish_reason == "content_filter"
        if response.state == "incomplete" or (self.provider in _SAY_WHY and not said_why):
            raise cut_off(self.provider)

    def _result(self, response: ModelResponse, mapper: StreamMapper) -> ModelResult:
        reason = mapper.finish_reason(response)
        return ModelResult(
            usage=usage_summary(response.usage, provider=self.provider),
            finish_reason=reason,
            suspended=response.state == "suspended",
            diagnostics={
                "model": response.model_name or self.name,
                "provider": self.provider,
                "finishReason": str((response.provider_details or {}).get("finish_reason", reason)),
            },
        )


_SAY_WHY = frozenset({"openai", "openai-chat", "anthropic", "google"})


def _label(model: PydanticModel[Any]) -> str:
    chat = any(kind.__name__ == "OpenAIChatModel" for kind in type(model).__mro__)
    return "openai-chat" if chat and model.system == "openai" else model.system


def _tool(tool: ToolDefinition) -> PydanticTool:
    return PydanticTool(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=dict(tool.input_schema),
        strict=False if tool.dynamic else tool.strict,
    )


def _native_tools(declared: Any) -> list[AbstractNativeTool]:
    tools: list[AbstractNativeTool] = []
    for item in declared:
        options = dict(item) if isinstance(item, Mapping) else {"kind": item}
        kind = options.pop("kind", None)
        if kind not in NATIVE_TOOL_TYPES:
            raise ModelError(f'There is no native tool "{kind}".')
        try:
            tools.append(NATIVE_TOOL_TYPES[kind](**options))
        except TypeError as error:
            raise ModelError(f'The native tool "{kind}" is declared wrong: {error}') from error
    return tools


def _keep_latest_usage(response: StreamedResponse) -> None:
    """Usage that comes twice in one stream is a running total; the library would add the two."""
    add = response._add_usage

    def latest(usage: Any, *, reported: bool, cumulative: bool = False) -> None:
        if reported:
            add(usage, reported=True, cumulative=True)

    response._add_usage = latest  # type: ignore[method-assign]
