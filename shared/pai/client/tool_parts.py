"""Tool parts: the native lifecycle of a call, with its data, suspensions and error joined onto it."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from typing_extensions import TypeIs

from pai.client.binding import Binding
from pai.client.parts import Json, Key, Part, optional, record, text
from pai.fold.reserved import SuspensionState

_STATIC = "tool-"


class ToolState(StrEnum):
    """The AI SDK's own states; PAI invents none."""

    input_streaming = "input-streaming"
    input_available = "input-available"
    approval_requested = "approval-requested"
    approval_responded = "approval-responded"
    output_available = "output-available"
    output_error = "output-error"
    output_denied = "output-denied"

    @property
    def settled(self) -> bool:
        return self in (ToolState.output_available, ToolState.output_error, ToolState.output_denied)


class PaiSuspensionView:
    """One episode in which the call waited. `input` and `resume` are the declared models on a bound client."""

    __slots__ = ("_binding", "raw", "suspension_id", "tool_name")

    def __init__(self, raw: Json, *, tool_name: str, binding: Binding) -> None:
        self.suspension_id: str = raw["id"]
        self.raw = raw
        self.tool_name = tool_name
        self._binding = binding

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def state(self) -> SuspensionState:
        return SuspensionState(self.raw["state"])

    @property
    def input(self) -> Any:
        return self._binding.suspension_input(self.tool_name, self.name, self.raw.get("input"))

    @property
    def resume(self) -> Any:
        """What it was answered with; None unless it was resumed."""
        return self._binding.suspension_resume(self.tool_name, self.name, self.raw.get("resume"))

    @property
    def reason(self) -> str | None:
        return self.raw.get("reason")

    @property
    def created_at(self) -> str:
        return str(self.raw["createdAt"])

    @property
    def resolved_at(self) -> str | None:
        return self.raw.get("resolvedAt")

    def __repr__(self) -> str:
        return f"PaiSuspensionView({self.raw!r})"


class PaiToolErrorView(NamedTuple):
    """What is safe to show of an error. `detail` is JSON."""

    message: str
    code: str | None = None
    detail: Any = None


class PaiToolDataView(Mapping[str, Any]):
    """The latest value by name; values are the declared models on a bound client."""

    __slots__ = ("_binding", "_tool_name", "raw")

    def __init__(self, raw: Mapping[str, Any], *, tool_name: str, binding: Binding) -> None:
        self.raw = raw
        self._tool_name = tool_name
        self._binding = binding

    def __getitem__(self, name: str) -> Any:
        return self._binding.tool_data(self._tool_name, name, self.raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"PaiToolDataView({dict(self.raw)!r})"


class PaiToolPart(Part):
    """One call. `input` is partial JSON while it streams; then, on a bound client, what the tool declares."""

    __slots__ = ("_parsed", "data", "suspensions")
    tool_call_id = text("toolCallId")
    title = optional("title")
    raw_input = optional("rawInput")
    error_text = optional("errorText")
    preliminary: Key[bool] = Key("preliminary", False)
    provider_executed: Key[bool] = Key("providerExecuted", False)
    approval = record("approval")
    tool_metadata = record("toolMetadata")
    call_provider_metadata = record("callProviderMetadata")
    result_provider_metadata = record("resultProviderMetadata")

    def __init__(self, raw: Json, binding: Binding) -> None:
        super().__init__(raw, binding)
        self._parsed: dict[str, Any] = {}
        self.data = PaiToolDataView(raw.get("data") or {}, tool_name=self.tool_name, binding=binding)
        self.suspensions: tuple[PaiSuspensionView, ...] = tuple(
            PaiSuspensionView(data, tool_name=self.tool_name, binding=binding) for data in raw.get("suspensions") or ()
        )

    @property
    def tool_name(self) -> str:
        raise NotImplementedError

    @property
    def state(self) -> ToolState:
        return ToolState(self.raw["state"])

    @property
    def input(self) -> Any:
        value = self.raw.get("input")
        if self.raw["state"] == ToolState.input_streaming:
            return value
        if "input" not in self._parsed:
            self._parsed["input"] = self._binding.tool_input(self.tool_name, value)
        return self._parsed["input"]

    @property
    def output(self) -> Any:
        if "output" not in self._parsed:
            self._parsed["output"] = self._binding.tool_output(self.tool_name, self.raw.get("output"))
        return self._parsed["output"]

    @property
    def pending_suspension(self) -> PaiSuspensionView | None:
        """The suspension that waits for an answer now."""
        pending = self.raw.get("pendingSuspension")
        if pending is None:
            return None
        return next((each for each in self.suspensions if each.suspension_id == pending["id"]), None)

    @property
    def error(self) -> PaiToolErrorView | None:
        """The safe, structured side of an output-error, for people."""
        data = self.raw.get("error")
        return None if data is None else PaiToolErrorView(data["message"], data.get("code"), data.get("detail"))


class PaiStaticToolPart(PaiToolPart):
    """`type` is `tool-{name}`."""

    __slots__ = ()

    @property
    def tool_name(self) -> str:
        return self.type.removeprefix(_STATIC)


class PaiDynamicToolPart(PaiToolPart):
    """A tool of a provider, or one that came with a request; its values are plain JSON."""

    __slots__ = ()

    @property
    def tool_name(self) -> str:
        return str(self.raw["toolName"])


def is_pai_tool_part(part: Part) -> TypeIs[PaiToolPart]:
    """Static and dynamic tool parts."""
    return isinstance(part, PaiToolPart)
