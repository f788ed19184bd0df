"""What every reader of stored tool parts needs, and that needs no provider library."""

from collections.abc import Mapping
from typing import Any


def tool_name(part: Mapping[str, Any]) -> str:
    """The tool of a static or dynamic tool part."""
    kind = str(part.get("type", ""))
    return str(part.get("toolName", "")) if kind == "dynamic-tool" else kind.removeprefix("tool-")
