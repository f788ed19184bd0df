"""What goes along with every request of a handle: client data, and the tools that the client executes."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pai.client.binding import to_json
from pai.client.data_listeners import DataListener
from pai.contract.client_tools import ClientToolDefinitionSnapshot


class Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
"""An option that was not given; None is a value."""

ClientTools = Sequence[ClientToolDefinitionSnapshot | Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    client_data: Any = UNSET
    client_tools: ClientTools | Unset = UNSET


RequestContextSource = Callable[[], RequestContext | Awaitable[RequestContext]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHandleOptions:
    """Static values apply to later sends, regeneration, actions and tool data. `request_context` is called for each
    request. An explicit option of a request wins over the dynamic, and that over the static value.

    `on_data` sees application data parts only.
    """

    client_data: Any = UNSET
    client_tools: ClientTools | Unset = UNSET
    request_context: RequestContextSource | None = None
    on_data: DataListener | None = None

    async def for_request(self, explicit: RequestContext) -> dict[str, Any]:
        """The fields of a request, without those that nobody gave. Raises ValidationFailed."""
        dynamic = RequestContext()
        if self.request_context is not None:
            found = self.request_context()
            dynamic = await found if inspect.isawaitable(found) else found
        fields: dict[str, Any] = {}
        data = _first(explicit.client_data, dynamic.client_data, self.client_data)
        if data is not UNSET and data is not None:
            fields["client_data"] = to_json(data, at="clientData")
        tools = _first(explicit.client_tools, dynamic.client_tools, self.client_tools)
        if tools is not UNSET and tools is not None:
            fields["client_tools"] = [
                tool.wire() if isinstance(tool, ClientToolDefinitionSnapshot) else to_json(tool, at="clientTools")
                for tool in tools
            ]
        return fields


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not UNSET), UNSET)
