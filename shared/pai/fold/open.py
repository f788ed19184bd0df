"""What is still streaming: it gathers deltas as they come and makes the text when somebody looks."""

from typing import Any, Literal

from pai.fold.partial_json import ABSENT, PartialJson
from pai.protocol.state import FoldingTool
from pai.protocol.text import NotJson, clean, join_surrogates

Part = dict[str, Any]


class OpenText:
    """An open text or reasoning part at `index`."""

    __slots__ = ("index", "pieces")

    def __init__(self, index: int, text: str = "") -> None:
        self.index = index
        self.pieces = [text]

    def render(self, part: Part, *, javascript: bool) -> Part:
        """`part` with the text so far, as a new object."""
        text = "".join(self.pieces)
        if javascript:
            text = join_surrogates(text)
        self.pieces = [text]
        return {**part, "text": text}


class OpenInput:
    """The input of a tool call while it streams. `index` is the part that its last delta went to, -1 before any."""

    __slots__ = ("_json", "_pieces", "dynamic", "encoding", "index", "metadata", "raw", "title", "tool_name")

    def __init__(self, tool_name: str, *, text: str = "", dynamic: bool | None = None, **optional: Any) -> None:
        self.tool_name = tool_name
        self.dynamic = dynamic
        self.title = optional.get("title", ABSENT)
        self.metadata = optional.get("toolMetadata", ABSENT)
        self.encoding: Literal["json", "text"] | None = optional.get("inputEncoding")
        self.index = -1
        self.raw = True
        self._json = PartialJson()
        self._pieces = [text] if text else []

    def append(self, delta: str) -> None:
        self._pieces.append(delta)

    def text(self) -> str:
        """All of the text so far."""
        if self._pieces:
            self._json.feed("".join(self._pieces))
            self._pieces = []
        return self._json.text

    def render(self, part: Part, *, javascript: bool) -> Part:
        """`part` with the input that the text so far amounts to, as a new object; no input when there is none."""
        text = join_surrogates(self.text()) if javascript else self.text()
        value = self._value(text, javascript=javascript)
        new = {key: item for key, item in part.items() if key != "input"}
        if value is not ABSENT:
            new["input"] = value
        if self.raw:
            new["rawInput"] = text
        return new

    def _value(self, text: str, *, javascript: bool) -> Any:
        if self.encoding == "text":
            return text
        if javascript:
            return PartialJson(text).result()[0]
        # An escape cut in half gives a lone surrogate, which neither the log nor SQL could hold.
        try:
            return clean(self._json.result()[0])
        except NotJson:
            return ABSENT

    def state(self) -> FoldingTool:
        """What another process needs to go on."""
        state: FoldingTool = {"text": self.text(), "toolName": self.tool_name}
        if self.dynamic is not None:
            state["dynamic"] = self.dynamic
        if self.title is not ABSENT:
            state["title"] = self.title
        if self.encoding is not None:
            state["inputEncoding"] = self.encoding
        if self.metadata is not ABSENT:
            state["toolMetadata"] = self.metadata
        return state

    @classmethod
    def restore(cls, state: FoldingTool) -> "OpenInput":
        optional = {key: value for key, value in state.items() if key in ("title", "inputEncoding", "toolMetadata")}
        return cls(state["toolName"], text=state["text"], dynamic=state.get("dynamic"), **optional)
