"""The terminal client against a running server: at the keyboard, in a pipe, and with one message."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai.protocol.ids import ID_RULE
from support.dev_server import PAICTL, DevServer, dev_server
from support.terminal import Terminal, terminal


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("chat") / "home") as running:
        yield running


@pytest.fixture
def keyboard(server: DevServer) -> Iterator[Terminal]:
    with terminal([str(PAICTL), "chat"], environment={"PAI_URL": server.url}) as opened:
        opened.expect("you> ")
        yield opened


def piped(server: DevServer, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PAICTL), "chat", *options],
        input=text,
        env={**os.environ, "PAI_URL": server.url, "PATH": os.defpath},
        text=True,
        capture_output=True,
        timeout=60,
        cwd=server.home.parent,
        check=False,
    )


def test_each_line_of_a_pipe_is_answered_before_the_next(server: DevServer) -> None:
    done = piped(server, "count to 3\n\ncount to 5\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2 3\n1 2 3 4 5\n", "")


def test_a_script_learns_that_something_went_wrong(server: DevServer) -> None:
    done = piped(server, "fail\ncount to 2\n")
    assert done.returncode == 1
    assert done.stdout == "The run failed: The demo model failed because it was asked to.\n1 2\n"


def test_a_thread_is_gone_on_with(server: DevServer) -> None:
    piped(server, "count to 2\n", "--thread", "mine")
    done = piped(server, "/history\n/threads\n", "--thread", "mine")
    assert done.stdout.startswith("you> count to 2\n1 2\n* mine ")


def test_reasoning_and_tools_are_shown(server: DevServer) -> None:
    done = piped(server, 'think about it\ncall get_weather {"city": ""}\n')
    assert "I weigh one word against the other" in done.stdout
    assert "  ✗ get_weather: Name a city.\n" in done.stdout


def test_the_next_line_answers_what_a_tool_waits_for(server: DevServer) -> None:
    done = piped(server, "publish a post about tea\nmaybe\ny nice\npick a file\nphoto.png\n")
    assert done.returncode == 0
    assert done.stdout.count("I have a draft; it needs your approval.") == 1
    assert "Answer y or n; a comment may follow.\n" in done.stdout
    assert '  ✓ publish_post {"published":true' in done.stdout
    assert '  ✓ pick_file {"filename":"photo.png"}\n' in done.stdout


def test_a_wait_can_be_stopped_and_the_conversation_goes_on(server: DevServer) -> None:
    done = piped(server, "publish a post about tea\n/stop\ncount to 2\n")
    assert done.stdout.endswith("(waits for an answer; /stop ends it)\n(stopped)\n1 2\n")


def test_a_message_that_ends_at_an_approval_says_how_to_go_on_and_the_next_one_answers(server: DevServer) -> None:
    asked = piped(server, "", "publish", "a", "post", "about", "tea")
    assert asked.returncode == 3, asked.stdout
    waits, _, command = asked.stdout.splitlines()[-1].partition(". Go on: ")
    called, _, go_on = command.partition(" chat --thread ")
    assert called == str(PAICTL), "it is not on PATH, and is called so that it need not be"
    assert (waits, asked.stderr) == ("Waits for publish_post.approval", "")
    useless = piped(server, "", "--thread", go_on, "perhaps")
    assert useless.returncode == 3
    assert "Answer y or n; a comment may follow.\n" in useless.stdout
    answered = piped(server, "", "--thread", go_on, "y", "well", "done")
    assert answered.returncode == 0, answered.stdout
    assert '  ⏸ publish_post waits for approval: {"title":"a post about tea"' in answered.stdout
    assert '  ✓ publish_post {"published":true' in answered.stdout
    assert '"comment":"well done"' in answered.stdout


def test_a_pipe_answers_what_a_thread_waits_for_before_it_says_anything(server: DevServer) -> None:
    assert piped(server, "pick a file\n", "--thread", "waits").returncode == 3
    done = piped(server, "photo.png\ncount to 2\n", "--thread", "waits")
    assert done.returncode == 0, done.stdout
    assert '  ✓ pick_file {"filename":"photo.png"}\n' in done.stdout
    assert done.stdout.endswith("\n1 2\n")


def test_what_another_system_is_to_answer_is_named_and_can_be_answered_here(server: DevServer) -> None:
    done = piped(server, 'call open_ticket {"title": "a", "body": "b"}\n', "--thread", "ticket")
    assert done.returncode == 3
    asked = '  ⏸ open_ticket waits for its output from another system, or from you: {"title":"a","body":"b"}'
    assert asked in done.stdout
    assert "Waits for open_ticket.output. Go on: " in done.stdout
    answered = piped(server, "", "--thread", "ticket", "17")
    assert answered.returncode == 0, answered.stdout
    assert "  answer: string\n" in answered.stdout
    assert "  ✓ open_ticket 17\nopen_ticket answered: 17.\n" in answered.stdout


def test_what_somebody_else_answered_is_said_and_shown(server: DevServer) -> None:
    with terminal([str(PAICTL), "chat", "--thread", "both"], environment={"PAI_URL": server.url}) as keyboard:
        keyboard.expect("you> ")
        keyboard.type('call open_ticket {"title": "a", "body": "b"}')
        keyboard.expect("open_ticket.output: ")
        keyboard.type("")
        keyboard.expect("(waits for an answer; /stop ends it)")
        keyboard.expect("open_ticket.output: ")
        assert piped(server, "", "--thread", "both", "T-17").returncode == 0
        keyboard.type("T-18")
        keyboard.expect("The action was answered already.")
        keyboard.expect("open_ticket answered: T-17.")
        keyboard.expect("you> ")


def test_what_a_client_tool_asks_for_is_shown_with_the_answer_that_it_expects(server: DevServer) -> None:
    done = piped(server, "pick a file\n")
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  ⏸ pick_file waits for its output"))
    assert lines[at].endswith("Let the person choose a file.")
    assert lines[at + 1].startswith('    answer: {"filename":"string"')


def test_without_a_server_it_says_what_to_do(tmp_path: Path) -> None:
    nobody = DevServer(tmp_path)
    done = piped(nobody, "hello\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"paictl: No PAI server answers at {nobody.url}. Start one with `paictl dev`, or name one with --url.\n"
    )


def test_an_unknown_agent_is_told_which_there_are(server: DevServer) -> None:
    done = piped(server, "hello\n", "--agent", "nobody")
    assert done.returncode == 1
    assert "has no agent 'nobody'. It has: main." in done.stderr


def test_an_id_that_none_can_be_is_refused_at_once(server: DevServer) -> None:
    done = piped(server, "", "--thread", "a/b", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("paictl: ")
    assert ID_RULE in done.stderr


def test_a_person_talks_and_leaves(keyboard: Terminal) -> None:
    keyboard.type("count to 3")
    keyboard.expect("1 2 3\n")
    keyboard.type("/help")
    keyboard.expect("/history")
    keyboard.expect("Ctrl-C    stop the answer that is being made; at a prompt, twice leaves")
    keyboard.type("/bogus")
    keyboard.expect("There is no command /bogus")
    keyboard.type("/new")
    keyboard.expect("A new thread: ")
    keyboard.type("/quit")
    keyboard.expect("Go on later: --thread ")
    assert keyboard.ended() == 0


def test_ctrl_c_stops_the_answer_and_the_conversation_goes_on(keyboard: Terminal) -> None:
    keyboard.type("count to 5000")
    keyboard.expect("5 6 7")
    keyboard.interrupt()
    keyboard.expect("(stopped)")
    keyboard.expect("you> ")
    keyboard.type("count to 2")
    keyboard.expect("1 2\n")


def test_ctrl_c_twice_leaves(keyboard: Terminal) -> None:
    keyboard.interrupt()
    keyboard.expect("leaves")
    keyboard.expect("you> ")
    keyboard.interrupt()
    assert keyboard.ended() == 0


def test_a_person_is_asked_for_approval(keyboard: Terminal) -> None:
    keyboard.type("publish a post about tea")
    keyboard.expect("publish_post.approval? [y/n] ")
    keyboard.type("n too long")
    keyboard.expect('✓ publish_post {"published":false')
    keyboard.expect("you> ")


def test_a_person_who_comes_back_is_asked_again(server: DevServer, keyboard: Terminal) -> None:
    keyboard.type("publish a post about coffee")
    keyboard.expect("publish_post.approval? [y/n] ")
    keyboard.type("/quit")
    keyboard.expect("Go on later: --thread ")
    assert keyboard.ended() == 0
    thread = re.findall(r"--thread ([\w-]+)", keyboard.shown)[-1]
    with terminal([str(PAICTL), "chat", "--thread", thread], environment={"PAI_URL": server.url}) as again:
        again.expect('waits for approval: {"title":"a post about coffee"')
        again.expect("publish_post.approval? [y/n] ")
        again.type("n")
        again.expect('✓ publish_post {"published":false')
        again.expect("you> ")


def test_progress_is_drawn_on_the_last_line(keyboard: Terminal) -> None:
    keyboard.type('call count {"to": 4, "seconds": 0.3}')
    keyboard.expect("] 25 %")
    keyboard.expect("✓ count 4")
    keyboard.expect("you> ")


def test_the_end_of_input_leaves(keyboard: Terminal) -> None:
    os.write(keyboard._master, b"\x04")
    keyboard.expect("Go on later")
    assert keyboard.ended() == 0
