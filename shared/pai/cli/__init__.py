"""`paictl`: starts PAI and its parts, and talks to them.

Only what a command needs is imported when it runs: `paictl --help` must not wait for a web framework, and Ctrl-C must
find somebody at home from the first moment on.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Mistakes of the caller end in one line on stderr, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    from pai.cli.lifeline import hold_lifeline

    hold_lifeline()
    from pai.cli.arguments import parser

    options = parser().parse_args(argv)
    from pai.cli.environment import left_out, told
    from pai.protocol.errors import PaiError

    try:
        return int(options.run(options) or 0)
    except PaiError as error:
        print(f"paictl: {told(error)}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (missing := left_out(error)) is None:
            raise
        print(f"paictl: {missing}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `paictl ... | head`
        sys.stderr.close()
        return 141


def _end_at_once(_: int, __: FrameType | None) -> None:
    """Until a command has its own way to stop there is nothing to put in order, and an exception would be printed or
    swallowed by whatever is being imported."""
    os._exit(INTERRUPTED)
