"""The README works as written: its commands run, one after the other, and print what it says they print."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.dev_server import PAICTL, REPOSITORY, DevServer, dev_server

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = "http://127.0.0.1:8460"
# curl ends with it when a watch was open for as long as it may.
_TIME_IS_UP = 28


@dataclass
class Reader:
    """Somebody who types what the README says, in a folder of their own."""

    folder: Path
    server: DevServer
    printed: str = ""

    def take(self, language: str, block: str) -> None:
        """What is tagged as `console` is for an environment that is not this one, and not run."""
        match language:
            case "python":
                name = block.split("\n", 1)[0].removeprefix("# ")
                (self.folder / name).write_text(self._adapted(block))
            case "sh" if "AGENTS=" in block:
                self.server.stop()
                self.server.agents = block.strip().split("AGENTS=")[1]
                self.server.start()
            case "sh" if not block.startswith("make "):
                self.printed = self._run(block)
            case "text":
                self._check(block)

    def _run(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._adapted(block)],
            cwd=self.folder,
            env={**os.environ, "PAI_URL": self.server.url, "PAI_HOME": str(self.server.home)},
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        assert done.returncode in (0, _TIME_IS_UP), done
        return done.stdout

    def _check(self, expected: str) -> None:
        """Each line is printed, in this order; `…` stands for the rest of a line, or a part of it."""
        at = 0
        for line in expected.splitlines():
            pattern = re.compile(".*?".join(map(re.escape, line.rstrip("…").split("…"))))
            found = pattern.search(self.printed, at)
            assert found, f"expected {line!r} in: {self.printed[at:]}"
            at = found.end()

    def _adapted(self, text: str) -> str:
        """The port and the environment of this test instead of the usual ones."""
        text = text.replace(_ADDRESS, self.server.url)
        return text.replace(".venv/bin/paictl", str(PAICTL)).replace(".venv/bin/python", sys.executable)


@pytest.mark.timeout(400)
def test_a_reader_gets_what_the_readme_promises(tmp_path: Path) -> None:
    blocks = _BLOCK.findall((REPOSITORY / "README.md").read_text())
    assert [language for language, _ in blocks].count("text") >= 4
    with dev_server(tmp_path / "home", directory=tmp_path) as server:
        reader = Reader(tmp_path, server)
        for language, block in blocks:
            reader.take(language, block)


def test_every_python_block_has_all_that_it_needs() -> None:
    blocks = _BLOCK.findall((REPOSITORY / "README.md").read_text())
    assert "py" not in {language for language, _ in blocks}, "what is tagged as python is checked"
    for block in (block for language, block in blocks if language == "python"):
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "E9,F", "-"]
        done = subprocess.run(command, input=block, text=True, capture_output=True, check=False)
        assert done.returncode == 0, block + done.stdout


def test_every_make_target_that_the_readme_names_is_there() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", (REPOSITORY / "README.md").read_text()))
    assert {"install", "run", "test", "check"} <= named
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("line", ["not printed", "Let … at us", "Let me…\nand"])
def test_the_check_of_this_test_finds_what_is_missing(tmp_path: Path, line: str) -> None:
    reader = Reader(tmp_path, DevServer(tmp_path), printed="and: Let me look at it")
    with pytest.raises(AssertionError, match="expected"):
        reader.take("text", line)
