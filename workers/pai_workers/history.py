"""What a model step sees of the thread: whole turns, the newest that fit the agent's budget."""

from collections.abc import Sequence
from typing import Any

from pai.engine.closing import own_calls
from pai.engine.records import message_record
from pai.protocol.json import dumps
from pai.store.tables import Message

BYTES_PER_TOKEN = 4


def history_of(messages: Sequence[Message], *, tokens: int | None, run_id: str) -> list[dict[str, Any]]:
    """The messages as UIMessages, oldest first. `tokens`: the budget, estimated; the newest turn always goes whole.

    A turn is everything of one run, so that no call is ever cut from its result. `run_id`: the run that goes on.
    """
    messages = _unparted(messages, run_id)
    turns: list[list[Message]] = []
    for message in messages:
        if turns and turns[-1][-1].run_id == message.run_id and message.run_id is not None:
            turns[-1].append(message)
        else:
            turns.append([message])
    if tokens is None:
        return [message_record(message) for message in messages]
    left = tokens * BYTES_PER_TOKEN
    kept: list[list[Message]] = []
    for turn in reversed(turns):
        left -= sum(len(dumps(message.parts)) for message in turn)
        if kept and left < 0:
            break
        kept.append(turn)
    return [message_record(message) for turn in reversed(kept) for message in turn]


def _unparted(messages: Sequence[Message], run_id: str) -> list[Message]:
    """Puts what came after a turn in which the provider paused before it, because the provider goes on from its end.

    A run goes on after a message without calls of ours only when that was such a turn.
    """
    last = {message.run_id: index for index, message in enumerate(messages) if _by_model(message)}
    ordered: list[Message] = []
    start: int | None = None
    for index, message in enumerate(messages):
        if start is not None and not _by_model(message):
            ordered.insert(start, message)
            start += 1
            continue
        start = len(ordered) if start is None else start
        ordered.append(message)
        goes_on = _by_model(message) and (message.run_id == run_id or index < last[message.run_id])
        if not goes_on or own_calls(message.parts):
            start = None
    return ordered


def _by_model(message: Message) -> bool:
    return message.run_id is not None and message.meta["pai"]["producer"] == "model"
