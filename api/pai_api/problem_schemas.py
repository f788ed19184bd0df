"""The shapes of problems, for the OpenAPI document: which codes there are, and what each adds."""

from typing import Literal

from pai.protocol.errors import FieldError
from pai.protocol.requests import PendingActionRef
from pai.protocol.wire import WireModel


class ProblemBase(WireModel):
    """RFC 9457. `code` is stable; `title` and `detail` are for people."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str


class Problem(ProblemBase):
    code: Literal[
        "unauthenticated",
        "forbidden",
        "method_not_allowed",
        "message_conflict",
        "call_settled",
        "queue_item_admitted",
        "idempotency_conflict",
        "regenerate_invalid",
        "internal",
    ]


class ValidationProblem(ProblemBase):
    code: Literal["validation_failed"]
    errors: list[FieldError]


class NotFoundProblem(ProblemBase):
    code: Literal["not_found"]
    what: Literal["thread", "run", "message", "file", "agent", "action", "queue_item", "command", "trigger", "route"]


class ThreadBusyProblem(ProblemBase):
    code: Literal["thread_busy"]
    thread_status: Literal["running", "waiting"]
    active_run_id: str | None = None
    pending_actions: list[PendingActionRef]


class ActionNotPendingProblem(ProblemBase):
    code: Literal["action_not_pending"]
    state: str


class RunNotActiveProblem(ProblemBase):
    code: Literal["run_not_active"]
    run_status: Literal["queued", "completed", "failed", "cancelled"]


class LimitProblem(ProblemBase):
    code: Literal["queue_full", "rate_limited"]
    limit: int
    retry_after: float | None = None


class TooLargeProblem(ProblemBase):
    code: Literal["too_large"]
    limit_bytes: int


class RangeProblem(ProblemBase):
    code: Literal["range_not_satisfiable"]
    byte_size: int


class UnavailableProblem(ProblemBase):
    """SQL is unreachable. Redis being down is no reason: a mutation is durable without it."""

    code: Literal["unavailable"]
    retry_after: float


PROBLEMS: dict[str, tuple[int, type[ProblemBase]]] = {
    "validation_failed": (422, ValidationProblem),
    "unauthenticated": (401, Problem),
    "forbidden": (403, Problem),
    "not_found": (404, NotFoundProblem),
    "method_not_allowed": (405, Problem),
    "thread_busy": (409, ThreadBusyProblem),
    "message_conflict": (409, Problem),
    "action_not_pending": (409, ActionNotPendingProblem),
    "call_settled": (409, Problem),
    "queue_item_admitted": (409, Problem),
    "run_not_active": (409, RunNotActiveProblem),
    "idempotency_conflict": (409, Problem),
    "regenerate_invalid": (409, Problem),
    "queue_full": (429, LimitProblem),
    "rate_limited": (429, LimitProblem),
    "too_large": (413, TooLargeProblem),
    "range_not_satisfiable": (416, RangeProblem),
    "unavailable": (503, UnavailableProblem),
    "internal": (500, Problem),
}
"""Every code on the wire: its status and the shape of its body."""
