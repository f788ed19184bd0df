"""The error tree. One root; a class carries its data as attributes and its wire `code`, `status` and extra members.

PaiError
├── ValidationFailed      422 validation_failed
├── Unauthenticated       401 unauthenticated
├── Forbidden             403 forbidden
├── NotFound              404 not_found
├── ThreadBusy            409 thread_busy
├── MessageConflict       409 message_conflict
├── ActionNotPending      409 action_not_pending
├── CallSettled           409 call_settled
├── QueueItemAdmitted     409 queue_item_admitted
├── RunNotActive          409 run_not_active
├── IdempotencyConflict   409 idempotency_conflict
├── RegenerateInvalid     409 regenerate_invalid
├── QueueFull             429 queue_full
├── RateLimited           429 rate_limited
├── TooLarge              413 too_large
├── Unavailable           503 unavailable
├── RunGone               the awaited run was removed
├── ThreadDeleted         the awaited thread was deleted
├── TransportError        the server could not be reached or answered something else than the protocol
└── DeclarationError      a wrong declaration of an agent (raised at import)
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import ValidationError

from pai.protocol.field_errors import field_message
from pai.protocol.wire import WireModel

MAX_ERRORS = 20
"""Faults of one value that are told."""


class FieldError(WireModel):
    """Where a value is wrong: a JSON path (`message.parts.0.text`) and what is wrong, for people."""

    path: str
    message: str


class PaiError(Exception):
    """The root of every error that PAI raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or self.title
        super().__init__(self.detail)

    def extra(self) -> dict[str, Any]:
        """The members that this problem adds to the common ones."""
        return {}

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 body."""
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **self.extra(),
        }


class ValidationFailed(PaiError):
    code = "validation_failed"
    status = 422
    title = "The request is not valid"

    def __init__(self, detail: str | None = None, *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail or (f"{errors[0].path}: {errors[0].message}".removeprefix(": ") if errors else None))
        self.errors = tuple(errors)

    @classmethod
    def at(cls, path: str, message: str) -> "ValidationFailed":
        return cls(errors=[FieldError(path=path, message=message)])

    @classmethod
    def of(cls, error: ValidationError) -> "ValidationFailed":
        """What pydantic refused; nothing of the value is quoted."""
        problems = error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
        return cls(
            errors=[FieldError(path=".".join(map(str, one["loc"])), message=field_message(one)) for one in problems]
        )

    def extra(self) -> dict[str, Any]:
        return {"errors": [error.wire() for error in self.errors]}


class Unauthenticated(PaiError):
    code = "unauthenticated"
    status = 401
    title = "Who are you?"


class Forbidden(PaiError):
    code = "forbidden"
    status = 403
    title = "Not allowed"


class NotFound(PaiError):
    """What does not exist, or belongs to another identity."""

    code = "not_found"
    status = 404
    title = "Not found"

    def __init__(self, what: str, detail: str | None = None) -> None:
        super().__init__(detail or f"There is no such {what.replace('_', ' ')}.")
        self.what = what

    def extra(self) -> dict[str, Any]:
        return {"what": self.what}


class ThreadBusy(PaiError):
    """The thread runs or waits, and the send did not ask to queue."""

    code = "thread_busy"
    status = 409
    title = "The thread is busy"

    def __init__(
        self, thread_status: str, *, active_run_id: str | None = None, pending_actions: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(f"The thread is {thread_status}. Wait for it, stop it, or send with `queue`.")
        self.thread_status = thread_status
        self.active_run_id = active_run_id
        self.pending_actions = [dict(ref) for ref in pending_actions]

    def extra(self) -> dict[str, Any]:
        active = {} if self.active_run_id is None else {"activeRunId": self.active_run_id}
        return {"threadStatus": self.thread_status, **active, "pendingActions": self.pending_actions}


class MessageConflict(PaiError):
    code = "message_conflict"
    status = 409
    title = "The message id was used with other content"


_GONE = {
    "resumed": "The action was answered already.",
    "output-available": "The action was answered already.",
    "output-error": "The action was cancelled, or has failed.",
    "cancelled": "The action was cancelled.",
    "failed": "The action has failed.",
    "superseded": "The action was superseded.",
}


class ActionNotPending(PaiError):
    code = "action_not_pending"
    status = 409
    title = "The action is not pending"

    def __init__(self, state: str) -> None:
        super().__init__(_GONE.get(state, f"The action is {state}."))
        self.state = state

    def extra(self) -> dict[str, Any]:
        return {"state": self.state}


class CallSettled(PaiError):
    code = "call_settled"
    status = 409
    title = "The tool call is settled"


class QueueItemAdmitted(PaiError):
    code = "queue_item_admitted"
    status = 409
    title = "The queued input was admitted already"


class RunNotActive(PaiError):
    code = "run_not_active"
    status = 409
    title = "The run is not active"

    def __init__(self, run_status: str) -> None:
        super().__init__(f"The run is {run_status}.")
        self.run_status = run_status

    def extra(self) -> dict[str, Any]:
        # The problem's own `status` is the HTTP status, so the run's travels under another name.
        return {"runStatus": self.run_status}


class IdempotencyConflict(PaiError):
    code = "idempotency_conflict"
    status = 409
    title = "The idempotency key was used with another request"


class RegenerateInvalid(PaiError):
    code = "regenerate_invalid"
    status = 409
    title = "This cannot be regenerated"


class _Limited(PaiError):
    status = 429

    def __init__(self, detail: str | None = None, *, limit: int, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.limit = limit
        self.retry_after = retry_after

    def extra(self) -> dict[str, Any]:
        return {"limit": self.limit} | ({} if self.retry_after is None else {"retryAfter": self.retry_after})


class QueueFull(_Limited):
    code = "queue_full"
    title = "The queue of the thread is full"


class RateLimited(_Limited):
    code = "rate_limited"
    title = "Too many requests"


class TooLarge(PaiError):
    code = "too_large"
    status = 413
    title = "Too large"

    def __init__(self, detail: str | None = None, *, limit_bytes: int) -> None:
        super().__init__(detail or f"The limit is {limit_bytes} bytes.")
        self.limit_bytes = limit_bytes

    def extra(self) -> dict[str, Any]:
        return {"limitBytes": self.limit_bytes}


class RangeNotSatisfiable(PaiError):
    """The part of a file that was asked for begins behind its end."""

    code = "range_not_satisfiable"
    status = 416
    title = "The file has no such bytes"

    def __init__(self, detail: str | None = None, *, byte_size: int) -> None:
        super().__init__(detail or f"The file has {byte_size} bytes.")
        self.byte_size = byte_size

    def extra(self) -> dict[str, Any]:
        return {"byteSize": self.byte_size}


class Unavailable(PaiError):
    code = "unavailable"
    status = 503
    title = "The database is unreachable"

    def __init__(self, detail: str | None = None, *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after

    def extra(self) -> dict[str, Any]:
        return {"retryAfter": self.retry_after}


class RunGone(PaiError):
    code = "run_gone"
    title = "The run was removed"


class ThreadDeleted(PaiError):
    code = "thread_deleted"
    title = "The thread was deleted"


class TransportError(PaiError):
    code = "transport"
    title = "The server could not be reached"


class DeclarationError(PaiError, TypeError):
    code = "declaration"
    title = "A wrong declaration"


def _wire_errors() -> dict[str, type[PaiError]]:
    return {
        cls.code: cls
        for cls in (
            Unauthenticated,
            Forbidden,
            MessageConflict,
            CallSettled,
            QueueItemAdmitted,
            IdempotencyConflict,
            RegenerateInvalid,
        )
    }


def from_problem(problem: Mapping[str, Any]) -> PaiError:
    """The typed error of a problem body that a server sent; unknown codes become the root class."""
    code, detail = problem.get("code"), problem.get("detail")
    match code:
        case "validation_failed":
            return ValidationFailed(detail, errors=[FieldError.read(error) for error in problem.get("errors", [])])
        case "not_found":
            return NotFound(problem.get("what", "thread"), detail)
        case "thread_busy":
            return ThreadBusy(
                problem.get("threadStatus", "running"),
                active_run_id=problem.get("activeRunId"),
                pending_actions=problem.get("pendingActions", ()),
            )
        case "action_not_pending":
            return ActionNotPending(problem.get("state", "settled"))
        case "run_not_active":
            return RunNotActive(problem.get("runStatus", "completed"))
        case "queue_full":
            return QueueFull(detail, limit=problem.get("limit", 0), retry_after=problem.get("retryAfter"))
        case "rate_limited":
            return RateLimited(detail, limit=problem.get("limit", 0), retry_after=problem.get("retryAfter"))
        case "too_large":
            return TooLarge(detail, limit_bytes=problem.get("limitBytes", 0))
        case "range_not_satisfiable":
            return RangeNotSatisfiable(detail, byte_size=problem.get("byteSize", 0))
        case "unavailable":
            return Unavailable(detail, retry_after=problem.get("retryAfter", 1.0))
    return _wire_errors().get(str(code), PaiError)(detail)
