"""Identifiers: what callers may choose, and what the server makes (a prefix plus UUIDv7)."""

import os
import re
import time
import uuid

ID_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9_\-.:~]{1,200}$"
_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_\-.:~]{1,200}\Z")


ID_RULE = "an id has 1 to 200 characters from A-Z a-z 0-9 _ - . : ~ and is not . or .."


def is_id(text: str) -> bool:
    """Whether `ID_RULE` holds."""
    return _ID.match(text) is not None


def new_id(prefix: str) -> str:
    """`{prefix}_{uuid7}`; ids made later by one process sort later, which suits indexes and means nothing."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{prefix}_{uuid.UUID(int=value)}"
