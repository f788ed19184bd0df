"""What the terminal shows of a run: everything once, in order, whatever gaps the states have."""

import io
from typing import Any

import pytest

from pai.cli.screen import Screen, Style, printable, shortened
from pai.cli.turn import TurnPrinter
from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage


class Terminal(io.StringIO):
    """Says that it is one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def message(*parts: dict[str, Any], id: str = "m1") -> PaiCanonicalMessage:
    return PaiCanonicalMessage({"id": id, "role": "assistant", "metadata": {}, "parts": list(parts)}, Binding())


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "state": "streaming"}


def tool(state: str, **fields: Any) -> dict[str, Any]:
    call = {"type": "tool-get_weather", "toolCallId": "c1", "state": state, "input": {"city": "Paris"}}
    return call | fields


def shown(*states: list[PaiCanonicalMessage], out: io.StringIO | None = None) -> str:
    written = out or io.StringIO()
    printer = TurnPrinter(Screen(written))
    for state in states:
        printer.show(state)
    return written.getvalue()


def test_text_is_printed_once_however_the_states_come() -> None:
    words = ["one", "two", "three", "four"]
    states = [[message(text(" ".join(words[: count + 1])))] for count in range(len(words))]
    for kept in (states, states[::2] + states[-1:], states[-1:], [*states, states[-1]]):
        assert shown(*kept) == "one two three four"


def test_each_part_begins_a_line() -> None:
    parts = [{"type": "reasoning", "text": "Hm."}, text("Yes."), text("Really.")]
    assert shown([message(*parts)]) == "Hm.\nYes.\nReally."


def test_a_call_shows_its_input_and_its_outcome() -> None:
    states = [
        [message(tool("input-streaming", input={"ci": ""}))],
        [message(tool("input-available"))],
        [message(tool("input-available"))],
        [message(tool("output-available", output={"celsius": 20}), text("Warm."))],
    ]
    assert shown(*states) == '⚙ get_weather {"city":"Paris"}\n  ✓ get_weather {"celsius":20}\nWarm.'


def test_a_call_that_failed_shows_the_reason_for_people() -> None:
    raw = tool("output-error", errorText="raw", error={"message": "Name a city.", "code": "CITY_MISSING"})
    assert shown([message(raw)]).splitlines()[1] == "  ✗ get_weather: Name a city."
    assert shown([message(tool("output-error", errorText="raw"))]).splitlines()[1] == "  ✗ get_weather: raw"


def test_parallel_calls_are_shown_as_they_settle() -> None:
    def calls(*states: str) -> list[PaiCanonicalMessage]:
        return [message(*(tool(state, toolCallId=str(at), output=at) for at, state in enumerate(states)))]

    lines = shown(
        calls("input-available", "input-available"),
        calls("input-available", "output-available"),
        calls("output-available", "output-available"),
    ).splitlines()
    assert [line.split()[0] for line in lines] == ["⚙", "⚙", "✓", "✓"]
    assert lines[2:] == ["  ✓ get_weather 1", "  ✓ get_weather 0"]


def test_a_preliminary_output_is_not_the_outcome() -> None:
    states = [
        [message(tool("output-available", output=1, preliminary=True))],
        [message(tool("output-available", output=2))],
    ]
    assert shown(*states).splitlines()[1:] == ["  ✓ get_weather 2"]


def test_a_suspension_tells_what_it_waits_for() -> None:
    pending = {"id": "s1", "name": "approval", "state": "pending", "input": {"title": "Tea"}, "createdAt": ""}
    waiting = [message(tool("input-available", suspensions=[pending], pendingSuspension=pending))]
    lines = shown(waiting, waiting).splitlines()
    assert lines[1:] == ['  ⏸ get_weather waits for approval: {"title":"Tea"}']


def test_an_answer_that_begins_again_says_so() -> None:
    again = "(the answer was interrupted and begins again)"
    assert shown([message(text("The old"))], [message(text("Some new"))]) == f"The old\n{again}\nSome new"
    assert shown([message(text("The old"))], [message()], [message(text("The old"))]) == f"The old\n{again}\nThe old"


def test_progress_is_a_line_that_comes_and_goes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    busy = [message(tool("input-available", data={"progress": {"percent": 50}}))]
    done = [message(tool("output-available", output=1))]
    printed = shown(busy, done, out=Terminal())
    assert "get_weather … [##########..........] 50 %\r\x1b[2K  ✓ get_weather 1\n" in printed
    assert "%" not in shown(busy, done)


def test_colors_need_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(out: io.StringIO) -> str:
        Screen(out).line("x", Style.red)
        return out.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert written(Terminal()) == "\x1b[31mx\x1b[0m\n"
    assert written(io.StringIO()) == "x\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(Terminal()) == "x\n"


def test_what_a_model_says_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b]0;title\x07b\x9b2J\tc\n\ud800") == "a]0;titleb2J\tc\n"


def test_symbols_have_stand_ins() -> None:
    class Latin(io.StringIO):
        encoding = "latin-1"

    assert shown([message(tool("output-available", output=1))], out=Latin()).splitlines() == [
        '* get_weather {"city":"Paris"}',
        "  = get_weather 1",
    ]


def test_a_long_value_is_one_short_line() -> None:
    assert shortened("a\nb  c", 10) == "a b c"
    assert shortened("abcdef", 4) == "abc…"
