"""A trigger: starts a run on a schedule or by call, without a person."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pai.contract.cron import Cron, Interval
from pai.contract.schema import Schema
from pai.contract.signature import Context, Signature, input_argument, invoke
from pai.protocol.errors import ValidationFailed
from pai.protocol.identity import Identity

Schedule = Cron | Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerContext(Context):
    """One fire. `slot` is the scheduled time that it stands for, or when it was called; `identity` is whom it acts for.

    `thread_id` is set when a caller names the thread.
    """

    trigger: str
    agent: str
    identity: Identity
    slot: datetime
    thread_id: str | None = None
    client_data: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerInput:
    """The user message that a trigger sends: `text`, or UserMessagePartInput `parts`, to a thread or to a new one.

    `title`, `category`, `hidden` and `thread_metadata` are only read when the thread is created. On a busy thread the
    input waits as `queue` says.
    """

    text: str | None = None
    parts: Sequence[Mapping[str, Any]] | None = None
    metadata: Mapping[str, Any] | None = None
    thread_id: str | None = None
    queue: Literal["queue", "steer"] = "queue"
    title: str | None = None
    category: str | None = None
    hidden: bool = False
    thread_metadata: Mapping[str, Any] | None = None

    def message_parts(self) -> list[dict[str, Any]]:
        """The parts of the message. Raises ValidationFailed when there are none, or both text and parts."""
        if (self.text is None) == (self.parts is None):
            raise ValidationFailed.at("parts", "give either text or parts")
        parts = [{"type": "text", "text": self.text}] if self.parts is None else [dict(part) for part in self.parts]
        if not parts:
            raise ValidationFailed.at("parts", "must not be empty")
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """`schedule` is None for one that only fires by call; `on_call` says whether trusted callers may fire it."""

    name: str
    description: str
    schedule: Schedule | None
    on_call: bool
    owner: Identity | None
    input: Schema
    function: Callable[..., Any]
    signature: Signature

    def next_after(self, moment: datetime) -> datetime | None:
        """The next slot after an aware time, in UTC; None without a schedule."""
        return None if self.schedule is None else self.schedule.next_after(moment)

    async def call(self, context: TriggerContext, value: Any = None) -> TriggerInput | None:
        """What to send; None for nothing. `value` is the JSON input of a call.

        Raises ValidationFailed for a wrong input or result, and what the function raises.
        """
        arguments = input_argument(self.signature, self.input, value, at="input")
        given = (context,) if self.signature.takes_context else ()
        result = await invoke(self.function, *given, **arguments)
        if result is None or isinstance(result, TriggerInput):
            return result
        if isinstance(result, str):
            return TriggerInput(text=result)
        raise ValidationFailed(f"The trigger {self.name} returned {type(result).__name__}, not a TriggerInput.")
