"""A program on a terminal, as a person has it."""

import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from support.waiting import wait_until_sync


class Terminal:
    """What the program has shown since the last look is searched in order: `expect` goes on behind what it found."""

    def __init__(self, argv: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the program closed its side
                return
            if not piece:
                return
            self.shown += piece.decode(errors="replace").replace("\r\n", "\n")

    def type(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def expect(self, text: str) -> None:
        """Wait until the program shows it."""
        wait_until_sync(
            lambda: text in self.shown[self._seen :],
            timeout=timedelta(seconds=30),
            saw=lambda: (text, self.shown[self._seen :]),
        )
        self._seen = self.shown.index(text, self._seen) + len(text)

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(timeout=30)
        self._reader.join(5)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        os.close(self._master)


@contextmanager
def terminal(argv: Sequence[str], *, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Whatever happens, the program ends with the block."""
    opened = Terminal(argv, environment=environment)
    try:
        yield opened
    finally:
        opened.close()
