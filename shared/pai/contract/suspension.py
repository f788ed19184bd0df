"""A named point at which a tool waits for somebody: an approval, a choice, a correction."""

from datetime import timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

from pai.contract.names import check_name
from pai.contract.schema import schema_of
from pai.protocol.errors import DeclarationError

InputT = TypeVar("InputT", default=Any)
ResumeT = TypeVar("ResumeT", default=Any)

OUTPUT = "output"
"""The action of a client or external tool is `{tool}.output`, so no suspension may be called that."""


class Suspension(Generic[InputT, ResumeT]):
    """`input` is what people are shown, `resume` what they answer with. None means any JSON.

        approval = Suspension("approval", input=Draft, resume=Decision, timeout=timedelta(days=7))

    After `timeout` without an answer the tool call ends as output-error. Raises DeclarationError.
    """

    def __init__(
        self,
        name: str,
        *,
        input: type[InputT] | None = None,
        resume: type[ResumeT] | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        what = f"Suspension {name!r}"
        check_name(name, what=what)
        if name == OUTPUT:
            raise DeclarationError(f"{what}: `output` names the action of client tools; choose another name.")
        check_duration(timeout, what=f"{what}: timeout")
        self.name = name
        self.timeout = timeout
        self.input = schema_of(input, what=f"{what}: input")
        self.resume = schema_of(resume, what=f"{what}: resume")

    def __repr__(self) -> str:
        return f"Suspension({self.name!r})"

    def validate_input(self, value: Any, *, at: str = "") -> InputT:
        """JSON -> what the renderer of the action is given. Raises ValidationFailed."""
        parsed: InputT = self.input.parse(value, at=at)
        return parsed

    def dump_input(self, value: InputT, *, at: str = "") -> Any:
        """What the tool suspends with -> JSON. Raises ValidationFailed."""
        return self.input.dump(value, at=at)

    def validate_resume(self, value: Any, *, at: str = "") -> ResumeT:
        """The submitted JSON -> what `ctx.suspend` returns. Raises ValidationFailed."""
        parsed: ResumeT = self.resume.parse(value, at=at)
        return parsed


def check_duration(duration: timedelta | None, *, what: str) -> None:
    """Raises DeclarationError unless it is None or a positive timedelta."""
    if duration is None:
        return
    if not isinstance(duration, timedelta) or duration <= timedelta(0):
        raise DeclarationError(f"{what} must be a positive timedelta (got {duration!r}).")
