"""From a decorated function to the record that the engine works with."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from pai.contract.command import Command, CommandContext
from pai.contract.context import ToolContext
from pai.contract.cron import Cron, Interval
from pai.contract.names import check_name
from pai.contract.schema import TypeSchema, require_object, schema_of
from pai.contract.signature import Signature, description_of, input_model, read_signature
from pai.contract.suspension import Suspension, check_duration
from pai.contract.tool import Tool, ToolData, ToolKind
from pai.contract.trigger import Schedule, Trigger, TriggerContext
from pai.protocol.errors import DeclarationError
from pai.protocol.identity import Identity

Data = Mapping[str, Any]
"""Names of tool data -> a type hint, or a ToolData."""


def server_tool(
    function: Callable[..., Any],
    *,
    what: str,
    name: str | None,
    description: str | None,
    suspensions: Sequence[Suspension[Any, Any]],
    data: Data | None,
    timeout: timedelta | None,
    queue: str | None,
    max_attempts: int,
) -> Tool:
    """Raises DeclarationError."""
    given = name or _name_of(function)
    what = f"{what} tool {given!r}"
    check_name(given, what=what)
    check_duration(timeout, what=f"{what}: timeout")
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or max_attempts < 1:
        raise DeclarationError(f"{what}: max_attempts must be 1 or more (got {max_attempts!r}).")
    signature = read_signature(function, context=ToolContext, what=what)
    schema = TypeSchema(input_model(signature, name=given, what=f"{what}: input"), what=f"{what}: input")
    schema.json_schema.pop("title", None)
    return Tool(
        name=given,
        kind=ToolKind.server,
        description=description if description is not None else description_of(function),
        input=schema,
        output=TypeSchema(signature.returns, what=f"{what}: output"),
        suspensions=_suspensions(suspensions, what=what),
        data=_data(data, what=what, client_writable=False),
        timeout=timeout,
        queue=queue,
        max_attempts=max_attempts,
        function=function,
        signature=signature,
    )


def waiting_tool(
    kind: ToolKind,
    *,
    what: str,
    name: str,
    description: str,
    input: Any,
    output: Any,
    data: Data | None,
    timeout: timedelta | None,
) -> Tool:
    """A tool that is not executed here: its output comes as an action. Raises DeclarationError."""
    what = f"{what} {kind} tool {name!r}"
    check_name(name, what=what)
    check_duration(timeout, what=f"{what}: timeout")
    schema = schema_of(dict[str, Any] if input is None else input, what=f"{what}: input")
    require_object(schema, what=f"{what}: input")
    return Tool(
        name=name,
        kind=kind,
        description=description,
        input=schema,
        output=schema_of(output, what=f"{what}: output"),
        # Whoever supplies the output is the only one who could write them.
        data=_data(data, what=what, client_writable=True),
        timeout=timeout,
    )


def command_of(function: Callable[..., Any], *, what: str, name: str | None, description: str | None) -> Command:
    """Raises DeclarationError."""
    given = name or _name_of(function)
    what = f"{what} command {given!r}"
    check_name(given, what=what)
    signature = read_signature(function, context=CommandContext, what=what)
    return Command(
        name=given,
        description=description if description is not None else description_of(function),
        input=TypeSchema(_only_input(signature, what=what), what=f"{what}: input"),
        output=TypeSchema(signature.returns, what=f"{what}: output"),
        function=function,
        signature=signature,
    )


def trigger_of(
    function: Callable[..., Any],
    *,
    what: str,
    name: str,
    cron: str | None,
    interval: timedelta | None,
    timezone: str,
    on_call: bool,
    owner: Identity | str | None,
    description: str | None,
) -> Trigger:
    """Raises DeclarationError."""
    what = f"{what} trigger {name!r}"
    check_name(name, what=what)
    schedule = _schedule(cron=cron, interval=interval, timezone=timezone, what=what)
    if schedule is None and not on_call:
        raise DeclarationError(f"{what}: nothing ever fires it; give `cron`, `interval` or `on_call=True`.")
    if schedule is not None and not owner:
        raise DeclarationError(f"{what}: name the `owner` that the schedule acts for (a subject, or an Identity).")
    signature = read_signature(function, context=TriggerContext, what=what)
    return Trigger(
        name=name,
        description=description if description is not None else description_of(function),
        schedule=schedule,
        on_call=on_call,
        owner=Identity(subject=owner) if isinstance(owner, str) else owner,
        input=TypeSchema(_only_input(signature, what=what), what=f"{what}: input"),
        function=function,
        signature=signature,
    )


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _suspensions(suspensions: Sequence[Suspension[Any, Any]], *, what: str) -> Mapping[str, Suspension[Any, Any]]:
    named: dict[str, Suspension[Any, Any]] = {}
    for suspension in suspensions:
        if not isinstance(suspension, Suspension):
            raise DeclarationError(f"{what}: suspensions are Suspension(...) objects (got {suspension!r}).")
        if suspension.name in named:
            raise DeclarationError(f"{what}: two suspensions are named {suspension.name!r}; rename one.")
        named[suspension.name] = suspension
    return MappingProxyType(named)


def _data(data: Data | None, *, what: str, client_writable: bool) -> Mapping[str, ToolData]:
    named: dict[str, ToolData] = {}
    for name, declared in (data or {}).items():
        check_name(name, what=f"{what}: tool data")
        named[name] = (
            declared if isinstance(declared, ToolData) else ToolData(declared, client_writable=client_writable)
        )
    return MappingProxyType(named)


def _only_input(signature: Signature, *, what: str) -> Any:
    """Commands and triggers take one input value, or none (then only null is accepted)."""
    match list(signature.parameters.items()):
        case []:
            return None
        case [(_, (hint, _))]:
            return hint
        case several:
            names = ", ".join(name for name, _ in several)
            raise DeclarationError(f"{what}: takes one input after the context, not {names}; put them into one model.")


def _schedule(*, cron: str | None, interval: timedelta | None, timezone: str, what: str) -> Schedule | None:
    if cron is not None and interval is not None:
        raise DeclarationError(f"{what}: give either `cron` or `interval`.")
    try:
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)  # UTC needs no zone data on the system
    except (ValueError, OSError, TypeError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise DeclarationError(f"{what}: {timezone!r} is no time zone ({error}).") from error
    except KeyError as error:
        hint = "write it like Europe/Berlin; on systems without zone data, install the package tzdata"
        raise DeclarationError(f"{what}: {timezone!r} is no time zone; {hint}.") from error
    try:
        if cron is not None:
            return Cron(cron, zone)
        return None if interval is None else Interval(interval)
    except (ValueError, TypeError, AttributeError) as error:
        raise DeclarationError(f"{what}: {error}.") from error
