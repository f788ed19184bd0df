"""What can go wrong between an agent's code and PAI, apart from wrong declarations (`pai.protocol.errors`).

ValidationFailed
├── ToolInputInvalid       the model (or a caller) gave a tool other input than it declares
├── ToolOutputInvalid      a tool returned other output than it declares
└── ClientToolsRefused     client tools that came with a request are malformed, or take a name that is taken
PaiError
├── OutcomeUnknown         a `ctx.step` was started once and nobody knows how it ended
├── ThreadsTooDeep         a tool starts a thread below too many others
├── ChangedSinceSuspension a tool that is entered again does something else than before it was suspended
└── Undeclared             a tool used a suspension or a data name that it does not declare
ToolError                  what an application raises for an error that the model should read
"""

from collections.abc import Sequence
from typing import Any

from pai.protocol.errors import FieldError, PaiError, ValidationFailed


class ToolInputInvalid(ValidationFailed):
    """`tool` names the tool; `errors` say where its input is wrong: the model reads them and can correct itself."""

    def __init__(self, tool: str, *, errors: Sequence[FieldError]) -> None:
        super().__init__(f"The input of {tool} is not valid: {_listed(errors)}", errors=errors)
        self.tool = tool


class ToolOutputInvalid(ValidationFailed):
    """`tool` names the tool; `errors` say where its output is wrong."""

    def __init__(self, tool: str, *, errors: Sequence[FieldError]) -> None:
        super().__init__(f"The output of {tool} is not valid: {_listed(errors)}", errors=errors)
        self.tool = tool


class ClientToolsRefused(ValidationFailed):
    """One error per thing that is wrong with the `clientTools` of a request."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(f"The client tools are refused: {_listed(errors)}", errors=errors)


class OutcomeUnknown(PaiError):
    """The effect `name` was started in an earlier attempt that died: it may or may not have happened."""

    code = "interrupted"
    title = "The outcome of an earlier attempt is unknown"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The step {name!r} was started by an attempt that died, and nobody knows whether it happened."
        )
        self.name = name


class ChangedSinceSuspension(PaiError):
    """An approval is never applied to something else than what was approved."""

    code = "changed_since_suspension"
    title = "The call changed since it was suspended"

    def __init__(self, name: str) -> None:
        super().__init__(f"At {name!r} the call does something else, or with another input, than before it waited.")
        self.name = name


class ThreadsTooDeep(PaiError):
    """A tool would start a thread below `limit` others: most likely agents that start each other in a circle."""

    code = "threads_too_deep"
    title = "Too many threads below each other"

    def __init__(self, limit: int) -> None:
        super().__init__(f"A thread has at most {limit} threads above it. Do this work here instead.")
        self.limit = limit


class Undeclared(PaiError):
    """A tool uses what its declaration does not name."""

    code = "undeclared"
    title = "Not declared"

    def __init__(self, tool: str, *, what: str, name: str, declared: Sequence[str]) -> None:
        names = ", ".join(declared) or "none"
        super().__init__(f"{tool} does not declare the {what} {name!r} (declared: {names}).")
        self.tool, self.what, self.name = tool, what, name


class ToolError(Exception):
    """Raise it in a tool for an error that the model should read and that people may see.

    Any other exception becomes a generic text, with the traceback only in the log. `detail` is JSON for the UI.

        raise ToolError("There is no such city.", code="CITY_UNKNOWN", detail={"city": city})
    """

    def __init__(self, message: str, *, code: str | None = None, detail: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.detail = detail


def _listed(errors: Sequence[FieldError], *, most: int = 5) -> str:
    shown = "; ".join(f"{error.path}: {error.message}" if error.path else error.message for error in errors[:most])
    return shown + (f"; and {len(errors) - most} more" if len(errors) > most else "")
