"""A thread that a tool started: work of another agent, in the background or followed to its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

ChildStatus = Literal["completed", "failed", "cancelled", "deleted"]


class Follows(Protocol):
    async def follow(self, version: str, *, timeout: timedelta | None) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """What a child's run came to: its last text, and why it ended when it did not complete."""

    thread_id: str
    status: ChildStatus
    text: str
    run_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "ChildResult":
        error = value.get("error") or {}
        return cls(
            thread_id=value["threadId"],
            status=value["status"],
            text=value["text"],
            run_id=value.get("runId"),
            error_code=error.get("code"),
            error_message=error.get("message"),
            reason=value.get("reason"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildThread:
    """See `ToolContext.start_thread`."""

    agent: str
    thread_id: str
    version: str
    run_id: str
    effects: Follows = field(repr=False, compare=False)

    async def result(self, *, timeout: timedelta | None = None) -> ChildResult:
        """Wait, holding nothing, until the child's run has ended; then the tool is entered again and this returns.

        After `timeout` the call ends as an output-error, and the child is stopped. A child that failed or was stopped
        is a result, not an error: look at its `status`. Results of several children may be awaited at once.
        """
        return ChildResult.of(await self.effects.follow(self.version, timeout=timeout))
