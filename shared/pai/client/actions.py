"""Pending actions: what a waiting tool part needs from outside, as a sidecar of that exact part.

Actions are controllers, not state: they are found for a message and a part of a state, and they are gone when the part
has moved on.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pai.client.binding import to_json
from pai.client.inputs import request
from pai.client.thread_state import ActionResult
from pai.contract.suspension import OUTPUT
from pai.protocol.requests import (
    ActionError,
    CancelResponse,
    FailResponse,
    PendingActionRef,
    SubmitResponse,
)

Response = SubmitResponse | CancelResponse | FailResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOrigin:
    """Where the action waits. `suspend_name` is None for the output of a client or external tool."""

    thread_id: str
    tool_name: str
    message_id: str
    tool_call_id: str
    run_id: str
    suspend_name: str | None = None
    kind: str = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActionView:
    """`input` is what people are shown: the suspension's input, or the call's for an output.

    The first answer wins: later ones raise ActionNotPending.
    """

    name: str
    input: Any
    origin: ActionOrigin
    ref: PendingActionRef
    _respond: Callable[[PendingActionRef, Response], Awaitable[ActionResult]] = field(repr=False, compare=False)

    async def submit(self, resume: Any) -> ActionResult:
        """The tool's output, or the suspension's resume payload: JSON or the declared model.

        Raises ValidationFailed, and the action stays pending, so that it can be corrected.
        """
        payload = to_json(resume, at="payload")
        return await self._respond(self.ref, SubmitResponse(type="submit", payload=payload))

    async def cancel(self, *, reason: str | None = None) -> ActionResult:
        """It cannot get a valid answer. A denial that is domain data is a submit."""
        return await self._respond(self.ref, request(CancelResponse, type="cancel", reason=reason))

    async def fail(
        self,
        error: str | Mapping[str, Any] | BaseException | ActionError,
        *,
        code: str | None = None,
        detail: Any = None,
    ) -> ActionResult:
        """Carrying it out failed. People and the model read the message; `detail` is for the UI."""
        return await self._respond(self.ref, FailResponse(type="fail", error=_failure(error, code=code, detail=detail)))


def action_ref(origin: ActionOrigin, *, action_id: str) -> PendingActionRef:
    """Raises ValidationFailed."""
    return request(
        PendingActionRef,
        kind=origin.kind,
        thread_id=origin.thread_id,
        tool_name=origin.tool_name,
        suspend_name=origin.suspend_name,
        message_id=origin.message_id,
        tool_call_id=origin.tool_call_id,
        run_id=origin.run_id,
        action_id=action_id,
        name=f"{origin.tool_name}.{origin.suspend_name or OUTPUT}",
    )


FAILED = "The client could not answer."


def _failure(
    error: str | Mapping[str, Any] | BaseException | ActionError, *, code: str | None, detail: Any
) -> ActionError:
    if isinstance(error, ActionError):
        return error
    if isinstance(error, Mapping):
        return request(ActionError, **{key: to_json(value, at=f"error.{key}") for key, value in error.items()})
    # What an exception says is for whoever wrote the code; people and the model get no more than that it failed.
    message = to_json(error, at="error.message") if isinstance(error, str) and error else FAILED
    detail = None if detail is None else to_json(detail, at="error.detail")
    return request(ActionError, message=message, code=code, detail=detail)
