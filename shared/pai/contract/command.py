"""A command: a typed call on a thread that needs no model, such as archiving it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pai.contract.schema import Schema
from pai.contract.signature import Context, Signature, input_argument, invoke
from pai.protocol.errors import ValidationFailed
from pai.protocol.identity import Identity
from pai.protocol.requests import SendQueueOptions


class ThreadAccess(Protocol):
    """The thread that a command works on, acting for the command's caller."""

    async def state(self) -> Mapping[str, Any]:
        """The snapshot, as of now."""
        ...

    async def rename(self, title: str) -> None:
        """Set the title, as if a person had."""
        ...

    async def update_metadata(self, changes: Mapping[str, Any], *, private: Mapping[str, Any] | None = None) -> None:
        """Merge keys into the thread's public and private metadata. Raises ValidationFailed."""
        ...

    async def send(self, content: str | Sequence[Mapping[str, Any]], *, queue: SendQueueOptions | None = None) -> str:
        """Start a run with an input message and give its id. Raises ThreadBusy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext(Context):
    """One call of a command. `client_data` is what the agent's `client_data` type makes of the request's."""

    thread_id: str
    agent: str
    identity: Identity
    client_data: Any = None
    thread: ThreadAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`input` is the type of the parameter after the context; without one, only null is accepted."""

    name: str
    description: str
    input: Schema
    output: Schema
    function: Callable[..., Any]
    signature: Signature

    async def call(self, context: CommandContext, value: Any, *, at: str = "input") -> Any:
        """JSON in, JSON out. Raises ValidationFailed, what the function raises, and TypeError for an output that is
        not of the declared type, which is no fault of the caller."""
        arguments = input_argument(self.signature, self.input, value, at=at)
        given = (context,) if self.signature.takes_context else ()
        result = await invoke(self.function, *given, **arguments)
        try:
            return self.output.dump(result, at="output")
        except ValidationFailed as error:
            raise TypeError(f"The command {self.name!r} returned something else than it declares: {error}") from None
