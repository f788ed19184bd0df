"""Hooks: an application's functions at fixed points of a run."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pai.contract.run_context import PendingAction, RunContext, RunOutcome, StepPreparation
from pai.contract.signature import invoke, read_signature
from pai.protocol.errors import DeclarationError

P = ParamSpec("P")
R = TypeVar("R")

Function = Callable[..., Any]


class Hooks:
    """The four points. Several functions at one point run in the order of their declaration, sync or async."""

    def __init__(self) -> None:
        self._run_start: list[Function] = []
        self._prepare_step: list[Function] = []
        self._run_finish: list[Function] = []
        self._action_pending: list[Function] = []

    def on_run_start(self, function: Callable[P, R], /) -> Callable[P, R]:
        """`(ctx: RunContext) -> None`, before the first model step of a run."""
        self._run_start.append(_checked(function, what="on_run_start", parameters=0))
        return function

    def prepare_step(self, function: Callable[P, R], /) -> Callable[P, R]:
        """`(ctx: RunContext) -> StepPreparation | None`, before every model step."""
        self._prepare_step.append(_checked(function, what="prepare_step", parameters=0))
        return function

    def on_run_finish(self, function: Callable[P, R], /) -> Callable[P, R]:
        """`(ctx: RunContext, outcome: RunOutcome) -> None`, when a run completed, failed or was cancelled.

        Whoever stops a run does not wait for it: then the thread may have gone on already. Input that was cancelled in
        the queue has had no run to finish.
        """
        self._run_finish.append(_checked(function, what="on_run_finish", parameters=1))
        return function

    def on_action_pending(self, function: Callable[P, R], /) -> Callable[P, R]:
        """`(ctx: RunContext, action: PendingAction) -> None`, when something waits for somebody: to tell them."""
        self._action_pending.append(_checked(function, what="on_action_pending", parameters=1))
        return function

    def hook(self, name: str) -> Function | None:
        """What to await at the point `name`; None when no function is declared there, so that no step is needed."""
        declared: dict[str, tuple[list[Function], Function]] = {
            "on_run_start": (self._run_start, self.run_started),
            "prepare_step": (self._prepare_step, self.step_prepared),
            "on_run_finish": (self._run_finish, self.run_finished),
            "on_action_pending": (self._action_pending, self.action_pending),
        }
        functions, run = declared[name]
        return run if functions else None

    async def run_started(self, context: RunContext) -> None:
        for function in self._run_start:
            await invoke(function, context)

    async def step_prepared(self, context: RunContext) -> StepPreparation:
        """What all `prepare_step` functions say together; of two that change the same, the later one counts."""
        prepared: dict[str, Any] = {}
        for function in self._prepare_step:
            result = await invoke(function, context)
            if result is None:
                continue
            if not isinstance(result, StepPreparation):
                raise TypeError(f"prepare_step returned {type(result).__name__}, not a StepPreparation")
            prepared |= {name: value for name in _CHANGES if (value := getattr(result, name)) is not None}
        return StepPreparation(**prepared)

    async def run_finished(self, context: RunContext, outcome: RunOutcome) -> None:
        for function in self._run_finish:
            await invoke(function, context, outcome)

    async def action_pending(self, context: RunContext, action: PendingAction) -> None:
        for function in self._action_pending:
            await invoke(function, context, action)


def check_run_function(function: Any, *, what: str) -> None:
    """Raises DeclarationError unless it can be called with a RunContext alone."""
    if not callable(function):
        raise DeclarationError(f"{what} must be a text, or a function of the RunContext (got {function!r}).")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise DeclarationError(f"{what}: the function takes one parameter, the RunContext ({error}).") from error
    except ValueError:  # a builtin without a signature
        return


_CHANGES = ("instructions", "tools", "model", "messages", "model_settings")


def _checked(function: Function, *, what: str, parameters: int) -> Function:
    what = f"{what} {getattr(function, '__name__', function)!r}"
    signature = read_signature(function, context=RunContext, what=what)
    if not signature.takes_context or len(signature.parameters) != parameters or signature.is_generator:
        second = {0: "", 1: " and what happened"}[parameters]
        raise DeclarationError(f"{what}: takes the RunContext{second}, and returns.")
    return function
