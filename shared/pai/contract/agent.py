"""An agent: a model, what it is told, and everything it may call, declared at import."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from pai.contract import declared
from pai.contract.command import Command
from pai.contract.hooks import Hooks, check_run_function
from pai.contract.metadata import check_model, check_name_of_agent, metadata_schema, ui_data_schemas
from pai.contract.run_context import ModelTask, RunContext
from pai.contract.schema import TypeSchema
from pai.contract.signature import invoke
from pai.contract.suspension import Suspension
from pai.contract.tool import Tool, ToolKind
from pai.contract.trigger import Trigger
from pai.protocol.errors import DeclarationError, ValidationFailed
from pai.protocol.identity import Identity

P = ParamSpec("P")
R = TypeVar("R")

Instructions = str | Callable[[RunContext], Any] | None
TextRule = Callable[[RunContext], Any] | ModelTask


class Agent(Hooks):
    """See the parameters of `__init__`. Functions are added with decorators and stay what they were.

        agent = Agent("main", model="anthropic:claude-sonnet-4-5", instructions="Be brief.")

        @agent.tool
        async def get_weather(city: str) -> Weather: ...

    Every wrong declaration raises DeclarationError, at once.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Any,
        instructions: Instructions = None,
        title: str | None = None,
        description: str | None = None,
        message_metadata: Any = None,
        thread_metadata: Any = None,
        run_metadata: Any = None,
        private_thread_metadata: Any = None,
        private_run_metadata: Any = None,
        client_data: Any = None,
        ui_data: Mapping[str, Any] | None = None,
        max_steps: int = 50,
        history_tokens: int | None = 100_000,
        model_settings: Mapping[str, Any] | None = None,
        thread_titles: TextRule | Literal["first_words"] | None = "first_words",
        reasoning_summaries: TextRule | None = None,
        queue: str | None = None,
    ) -> None:
        """Declare an agent.

        name: an id; it is part of the URL.
        model: `provider:name`, a pydantic-ai Model, or `demo`. instructions: a text, or a function of the RunContext.
        title, description: for people who choose among agents.
        *_metadata, client_data: types of what threads, runs, messages and requests carry; None takes any JSON object.
        Private metadata never leaves through an untrusted route.
        ui_data: name -> type of the application's `data-{name}` parts.
        max_steps: model calls in one run.
        history_tokens: how much history (whole turns, estimated) a model call gets; None: all of it.
        thread_titles: how a thread that nobody named gets a title. reasoning_summaries: how reasoning gets its summary.
        queue: the Celery queue of this agent's steps.
        """
        super().__init__()
        what = f"Agent {name!r}"
        check_name_of_agent(name)
        check_model(model, what=what)
        if not (instructions is None or isinstance(instructions, str)):
            check_run_function(instructions, what=f"{what}: instructions")
        for option, rule in (("thread_titles", thread_titles), ("reasoning_summaries", reasoning_summaries)):
            if not (rule is None or rule == "first_words" or isinstance(rule, ModelTask)):
                check_run_function(rule, what=f"{what}: {option}")
        for option, limit in (("max_steps", max_steps), ("history_tokens", history_tokens)):
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise DeclarationError(f"{what}: {option} must be 1 or more (got {limit!r}).")
        self.name, self.model, self.instructions = name, model, instructions
        self.title, self.description = title, description
        self.message_metadata = metadata_schema(message_metadata, what=f"{what}: message_metadata")
        self.thread_metadata = metadata_schema(thread_metadata, what=f"{what}: thread_metadata")
        self.run_metadata = metadata_schema(run_metadata, what=f"{what}: run_metadata", given=False)
        self.private_thread_metadata = metadata_schema(private_thread_metadata, what=f"{what}: private_thread_metadata")
        self.private_run_metadata = metadata_schema(private_run_metadata, what=f"{what}: private_run_metadata")
        self.client_data = None if client_data is None else TypeSchema(client_data, what=f"{what}: client_data")
        self.ui_data = ui_data_schemas(ui_data or {}, what=what)
        self.max_steps, self.history_tokens = max_steps, history_tokens
        self.model_settings: Mapping[str, Any] = dict(model_settings or {})
        self.thread_titles, self.reasoning_summaries, self.queue = thread_titles, reasoning_summaries, queue
        self._tools: dict[str, Tool] = {}
        self._commands: dict[str, Command] = {}
        self._triggers: dict[str, Trigger] = {}

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    @property
    def tools(self) -> Mapping[str, Tool]:
        return MappingProxyType(self._tools)

    @property
    def commands(self) -> Mapping[str, Command]:
        return MappingProxyType(self._commands)

    @property
    def triggers(self) -> Mapping[str, Trigger]:
        return MappingProxyType(self._triggers)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        suspensions: Sequence[Suspension[Any, Any]] = (),
        data: declared.Data | None = None,
        timeout: timedelta | None = None,
        queue: str | None = None,
        max_attempts: int = 1,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        suspensions: Sequence[Suspension[Any, Any]] = (),
        data: declared.Data | None = None,
        timeout: timedelta | None = None,
        queue: str | None = None,
        max_attempts: int = 1,
    ) -> Any:
        """A server tool: a sync or async function, or an async generator whose yields are shown as they come.

        The signature is the input schema, the docstring the description, the return type the output schema; a first
        parameter of type ToolContext is the context. `timeout` is for one run of the function: a call that waited is a
        run anew. With `max_attempts` above 1 a call whose worker died is run again: only for tools that may run twice.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            tool = declared.server_tool(
                function,
                what=f"Agent {self.name!r}:",
                name=name,
                description=description,
                suspensions=suspensions,
                data=data,
                timeout=timeout,
                queue=queue,
                max_attempts=max_attempts,
            )
            self._add(self._tools, tool.name, tool, kind="tool")
            return function

        return declare if function is None else declare(function)

    def client_tool(
        self,
        name: str,
        *,
        input: Any = None,
        output: Any = None,
        description: str = "",
        data: declared.Data | None = None,
        timeout: timedelta | None = None,
    ) -> Tool:
        """A tool that the client executes: its call waits until the client submits the output.

        `input` is an object type, `output` any type; None takes any JSON. After `timeout` it ends as output-error.
        """
        return self._waiting(
            ToolKind.client, name, input=input, output=output, description=description, data=data, timeout=timeout
        )

    def external_tool(
        self,
        name: str,
        *,
        input: Any = None,
        output: Any = None,
        description: str = "",
        data: declared.Data | None = None,
        timeout: timedelta | None = None,
    ) -> Tool:
        """A tool whose output some other system supplies later, as `client_tool` otherwise."""
        return self._waiting(
            ToolKind.external, name, input=input, output=output, description=description, data=data, timeout=timeout
        )

    @overload
    def command(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def command(
        self, /, *, name: str | None = None, description: str | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def command(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
    ) -> Any:
        """A typed call on a thread: `async def archive(ctx: CommandContext, args: ArchiveArgs) -> ArchiveResult`."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            what = f"Agent {self.name!r}:"
            command = declared.command_of(function, what=what, name=name, description=description)
            self._add(self._commands, command.name, command, kind="command")
            return function

        return declare if function is None else declare(function)

    def trigger(
        self,
        name: str,
        *,
        cron: str | None = None,
        interval: timedelta | None = None,
        timezone: str = "UTC",
        on_call: bool = False,
        owner: Identity | str | None = None,
        description: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Start runs by `cron` (in `timezone`), every `interval`, or with `on_call` when a trusted caller says so.

        A schedule acts for its `owner`, a call for the caller's. The function returns a TriggerInput, a text, or None.
        """

        def declare(function: Callable[P, R]) -> Callable[P, R]:
            trigger = declared.trigger_of(
                function,
                what=f"Agent {self.name!r}:",
                name=name,
                cron=cron,
                interval=interval,
                timezone=timezone,
                on_call=on_call,
                owner=owner,
                description=description,
            )
            self._add(self._triggers, name, trigger, kind="trigger")
            return function

        return declare

    async def instructions_for(self, context: RunContext) -> str:
        """The instructions of one model step; empty when there are none."""
        if not callable(self.instructions):
            return self.instructions or ""
        text = await invoke(self.instructions, context)
        if not isinstance(text, str):
            raise ValidationFailed(f"The instructions of {self.name} returned {type(text).__name__}, not a text.")
        return text

    def read_client_data(self, value: Any, *, at: str = "clientData") -> Any:
        """What contexts hold as `client_data`. Raises ValidationFailed."""
        return value if self.client_data is None else self.client_data.parse(value, at=at)

    def _waiting(self, kind: ToolKind, name: str, **options: Any) -> Tool:
        tool = declared.waiting_tool(kind, what=f"Agent {self.name!r}:", name=name, **options)
        self._add(self._tools, name, tool, kind="tool")
        return tool

    def _add(self, records: dict[str, Any], name: str, record: Any, *, kind: str) -> None:
        if name in records:
            raise DeclarationError(f"Agent {self.name!r}: two {kind}s are named {name!r}; rename one.")
        records[name] = record
