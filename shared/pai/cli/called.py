"""How this program is called from here, for commands that are printed to be typed."""

import shlex
import shutil
import sys
from pathlib import Path


def command() -> str:
    """`paictl` where a shell finds this one under that name, else the path that it was started with."""
    called = Path(sys.argv[0])
    if called.name != "paictl":
        return f"{shlex.quote(sys.executable)} -m pai.cli"
    found = shutil.which("paictl")
    if found and Path(found).resolve() == called.resolve():
        return "paictl"
    here = Path.cwd()
    path = called.absolute().relative_to(here) if called.absolute().is_relative_to(here) else called.absolute()
    return shlex.quote(str(path))
