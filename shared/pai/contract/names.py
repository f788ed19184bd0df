"""What declared things may be called: one rule, which every provider, URL and part id accepts."""

import re

from pai.protocol.errors import DeclarationError

NAME_RULE = "1 to 64 letters, digits, _ or -, beginning with a letter or _"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


def is_name(name: object) -> bool:
    """Tools, suspensions, data, commands and triggers are named so: models, `{call}:{name}` ids and paths need it."""
    return isinstance(name, str) and _NAME.match(name) is not None


def check_name(name: object, *, what: str) -> None:
    """Raises DeclarationError."""
    if not is_name(name):
        raise DeclarationError(f"{what}: {name!r} is no name. A name has {NAME_RULE}.")
