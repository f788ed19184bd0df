"""Commands of a thread: typed calls that need no model."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pai.client.request_context import UNSET


class Command(Protocol):
    """One command by name. Raises ValidationFailed, NotFound."""

    async def __call__(self, input: Any = None, /, *, client_data: Any = UNSET) -> Any: ...


class ThreadCommands:
    """`await thread.commands.archive(ArchiveArgs(...))`, or `thread.commands["archive"](...)`.

    Inputs are JSON or the declared model; outputs are the declared model on a bound client.
    """

    def __init__(self, execute: Callable[[str, Any, Any], Awaitable[Any]]) -> None:
        self._execute = execute

    def __getitem__(self, name: str) -> Command:
        async def command(input: Any = None, /, *, client_data: Any = UNSET) -> Any:
            return await self._execute(name, input, client_data)

        return command

    def __getattr__(self, name: str) -> Command:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]
