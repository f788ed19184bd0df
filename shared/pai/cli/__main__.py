"""`python -m pai.cli`: what the supervisor starts, so that its parts run on the interpreter it runs on itself."""

import sys

from pai.cli import main

sys.exit(main())
