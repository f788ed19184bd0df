"""What the terminal shows: lines that stay, and on a real terminal one last line that comes and goes."""

import io
import os
import shutil
import unicodedata
from enum import StrEnum
from typing import TextIO


class Style(StrEnum):
    """SGR codes."""

    plain = ""
    dim = "2"
    bold = "1"
    red = "31"
    green = "32"
    yellow = "33"
    cyan = "36"


class Screen:
    """Only appends, so that it works in a pipe, a log and any terminal alike.

    Colors and the status line need a terminal; `NO_COLOR` and `TERM=dumb` turn the colors off.
    """

    def __init__(self, out: TextIO) -> None:
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="replace")
        self._out = out
        self._live = out.isatty()
        self._colors = self._live and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._ascii = "utf" not in (out.encoding or "utf-8").lower()
        self._column_zero = True
        self._status = ""

    def write(self, text: str, style: Style = Style.plain) -> None:
        """Text as it comes, without a line break of its own."""
        shown = printable(text)
        if not shown:
            return
        self._clear_status()
        self._out.write(self._styled(shown, style))
        self._out.flush()
        self._column_zero = shown.endswith("\n")

    def line(self, text: str = "", style: Style = Style.plain) -> None:
        """A line of its own."""
        self.end_line()
        self._clear_status()
        self._out.write(self._styled(printable(text), style) + "\n")
        self._out.flush()

    def end_line(self) -> None:
        """Begin a new line, unless one has begun."""
        if not self._column_zero:
            self._clear_status()
            self._out.write("\n")
            self._out.flush()
            self._column_zero = True

    def status(self, text: str) -> None:
        """Show what is going on now in the last line, until something else is shown. Nothing in a pipe."""
        if not self._live or text == self._status:
            return
        self.end_line()
        self._clear_status()
        self._status = text
        if text:
            width = shutil.get_terminal_size().columns - 1
            self._out.write(self._styled(shortened(printable(text), width), Style.dim))
            self._out.flush()

    def symbol(self, symbol: str, plain: str) -> str:
        """The symbol, or its stand-in where the terminal cannot show it."""
        return plain if self._ascii else symbol

    def _clear_status(self) -> None:
        if self._status:
            self._out.write("\r\x1b[2K")
            self._status = ""

    def _styled(self, text: str, style: Style) -> str:
        if not self._colors or style is Style.plain or not text:
            return text
        return f"\x1b[{style}m{text}\x1b[0m"


def printable(text: str) -> str:
    """Without control characters, so that what a model says cannot drive the terminal."""
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cs"))


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= width else joined[: max(width - 1, 0)] + "…"
