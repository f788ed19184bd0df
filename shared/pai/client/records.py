"""The records of a thread whose metadata a contract may declare."""

from typing import Any

from pai.protocol import state


class PaiThreadHead(state.PaiThreadHead):
    """`metadata` is the declared model on a bound client; JSON, maybe without declared fields, until there is one."""

    metadata: Any = {}


class RunState(state.RunState):
    """`metadata` is the declared model on a bound client."""

    metadata: Any = {}
