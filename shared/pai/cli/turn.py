"""Shows a run as it goes: what is new in a state since the last one, as text, reasoning and tool activity."""

from collections.abc import Iterable
from typing import Any

from pai.cli.screen import Screen, Style, shortened
from pai.client.messages import PaiMessage
from pai.client.parts import FilePart, PaiDataPart, PaiReasoningPart, Part, SourceUrlPart, TextPart
from pai.client.tool_parts import PaiToolPart, ToolState
from pai.protocol.json import dumps

_WIDTH = 160
_Key = tuple[str, int]


class TurnPrinter:
    """Prints each part once, and its text as it grows. `show` may be given any number of states, with any gaps."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._printed: dict[_Key, str] = {}
        self._current: _Key | None = None

    def show(self, messages: Iterable[PaiMessage]) -> None:
        """The messages of one run's output, in order."""
        status = ""
        for message in messages:
            self._forget_removed(message)
            for index, part in enumerate(message.parts):
                status = self._show_part((message.id, index), part) or status
        if status:
            self._screen.status(status)

    def _forget_removed(self, message: PaiMessage) -> None:
        """A new attempt of a model step begins from nothing: say so, then print what it says."""
        gone = [key for key in self._printed if key[0] == message.id and key[1] >= len(message.parts)]
        if gone:
            for key in gone:
                del self._printed[key]
            self._interrupted()

    def _interrupted(self) -> None:
        self._current = None
        self._screen.line("(the answer was interrupted and begins again)", Style.yellow)

    def _show_part(self, key: _Key, part: Part) -> str:
        """Print what is new; what goes on at the moment, for the status line."""
        match part:
            case TextPart():
                self._grow(key, part.text, Style.plain)
            case PaiReasoningPart():
                self._grow(key, part.text, Style.dim)
            case PaiToolPart():
                return self._show_tool(key, part)
            case SourceUrlPart():
                self._once(key, f"source: {part.title or ''} {part.url}".replace("  ", " "), Style.dim)
            case FilePart():
                self._once(key, f"file: {part.filename or part.media_type} {shortened(part.url, _WIDTH)}", Style.dim)
            case PaiDataPart():
                self._once(key, f"{part.name}: {told(part.raw.get('data'))}", Style.dim)
        return ""

    def _grow(self, key: _Key, text: str, style: Style) -> None:
        printed = self._printed.get(key, "")
        if not text.startswith(printed):
            self._interrupted()
            printed = ""
        if new := text[len(printed) :]:
            if self._current != key:
                self._screen.end_line()
                self._current = key
            self._screen.write(new, style)
        self._printed[key] = text

    def _once(self, key: _Key, line: str, style: Style) -> None:
        if self._printed.get(key) != line:
            self._printed[key] = line
            self._current = None
            self._screen.line(line, style)

    def _show_tool(self, key: _Key, part: PaiToolPart) -> str:
        name, state = part.title or part.tool_name, part.state
        if state is ToolState.input_streaming:
            return f"{name} …"
        called = self._printed.get(key, "")
        if not called:
            symbol = self._screen.symbol("⚙", "*")
            self._note(key, "called", f"{symbol} {name} {told(part.raw.get('input'))}", Style.cyan)
        suspension = part.pending_suspension
        if suspension is not None and not self._noted(key, suspension.suspension_id):
            symbol = self._screen.symbol("⏸", "?")
            asked = f"  {symbol} {name} waits for {suspension.name}: {told(suspension.raw.get('input'))}"
            self._note(key, suspension.suspension_id, asked, Style.yellow)
        if state.settled and not part.preliminary:
            if not self._noted(key, "settled"):
                self._note(key, "settled", self._outcome(name, part), Style.plain)
            return ""
        return "" if suspension else f"{name} {_going_on(part)}"

    def _outcome(self, name: str, part: PaiToolPart) -> str:
        if part.state is ToolState.output_available:
            return f"  {self._screen.symbol('✓', '=')} {name} {told(part.raw.get('output'))}"
        reason = part.error.message if part.error else part.error_text or "denied"
        return f"  {self._screen.symbol('✗', '!')} {name}: {shortened(reason, _WIDTH)}"

    def _noted(self, key: _Key, what: str) -> bool:
        return what in self._printed.get(key, "").split()

    def _note(self, key: _Key, what: str, line: str, style: Style) -> None:
        self._printed[key] = f"{self._printed.get(key, '')} {what}"
        self._current = None
        self._screen.line(line, style)


def told(value: Any) -> str:
    """JSON in one short line; a text without its quotes."""
    return shortened(value if isinstance(value, str) else dumps(value).decode(), _WIDTH)


def _going_on(part: PaiToolPart) -> str:
    shown = [_progress(name, value) for name, value in part.data.raw.items()]
    if part.preliminary:
        shown.append(told(part.raw.get("output")))
    return " ".join(["…", *shown])


def _progress(name: str, value: Any) -> str:
    """A bar where the tool's data has a percentage, else the data."""
    percent = value.get("percent") if isinstance(value, dict) else None
    if isinstance(percent, int | float) and 0 <= percent <= 100:
        return f"[{'#' * round(percent / 5):.<20}] {percent:g} %"
    return f"{name}: {told(value)}"
