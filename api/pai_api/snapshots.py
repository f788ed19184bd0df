"""Snapshots as bytes."""

from pai.protocol.json import dumps
from pai.protocol.state import TransportState

_PLAIN = {"messages", "folding"}


def encode_state(state: TransportState) -> bytes:
    """The state's JSON.

    Messages are the bulk of it and plain JSON already: a walk through pydantic would only copy them, and take
    a hundred times as long.
    """
    rest = state.model_dump(mode="json", by_alias=True, exclude=_PLAIN)
    return dumps({**rest, "messages": state.messages, "folding": state.folding})
