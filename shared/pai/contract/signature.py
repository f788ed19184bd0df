"""What the signature of an application's function declares: its context, input and output, and how it is called."""

import asyncio
import inspect
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
)
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from pai.contract.contained import contained, in_thread
from pai.contract.schema import Schema
from pai.protocol.errors import DeclarationError

_ASYNC_ITERABLES = (AsyncGenerator, AsyncIterator, AsyncIterable)


class Context:
    """The base of what functions get as their first parameter; the name tells which."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """`parameters`: name -> (hint, default or `inspect.Parameter.empty`), without the context parameter.

    `returns` is the hint of what the function gives in the end: for an async generator, of what it yields.
    """

    takes_context: bool
    parameters: Mapping[str, tuple[Any, Any]]
    returns: Any
    is_async: bool
    is_generator: bool


def read_signature(function: Callable[..., Any], *, context: type[Context], what: str) -> Signature:
    """Raises DeclarationError, whose message names `what` and says how to write it."""
    if not inspect.isroutine(function):
        raise DeclarationError(f"{what}: decorate a function (got {type(function).__name__}).")
    if inspect.isgeneratorfunction(function):
        raise DeclarationError(f"{what}: a generator must be async: write `async def` with `yield`.")
    hints = _hints(function, what=what)
    takes_context, parameters = False, {}
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        _check_kind(parameter, what=what)
        if isinstance(hint, type) and issubclass(hint, Context):
            _check_context(hint, context=context, index=index, name=parameter.name, what=what)
            takes_context = True
        elif hint is inspect.Parameter.empty:
            wanted = context.__name__ if index == 0 and parameter.name in ("ctx", "context") else "its type"
            raise DeclarationError(f"{what}: annotate {parameter.name!r} with {wanted}; annotations are the schema.")
        else:
            parameters[parameter.name] = (hint, _default(parameter, what=what))
    is_generator = inspect.isasyncgenfunction(function)
    return Signature(
        takes_context=takes_context,
        parameters=types.MappingProxyType(parameters),
        returns=_returned(hints.get("return", Any), is_generator=is_generator),
        is_async=inspect.iscoroutinefunction(function),
        is_generator=is_generator,
    )


def input_model(signature: Signature, *, name: str, what: str) -> Any:
    """A model with one field per parameter; unknown keys are refused. Raises DeclarationError.

    Fields have made-up names and the parameter's as alias: a parameter may be called `json` or `copy`, a field may not.
    """
    fields: dict[str, Any] = {}
    for index, (parameter, (hint, default)) in enumerate(signature.parameters.items()):
        given = ... if default is inspect.Parameter.empty else default
        fields[f"parameter_{index}"] = (hint, Field(given, alias=parameter))
    try:
        return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = error.message.split("\n", 1)[0]
        raise DeclarationError(f"{what}: a parameter cannot be read from JSON ({reason}).") from error


def arguments_of(signature: Signature, model: Any) -> dict[str, Any]:
    """The keyword arguments that a parsed `input_model` stands for; what was not given keeps the function's default."""
    names = list(signature.parameters)
    return {
        names[index]: getattr(model, f"parameter_{index}")
        for index in range(len(names))
        if f"parameter_{index}" in model.model_fields_set
    }


def input_argument(signature: Signature, schema: Schema, value: Any, *, at: str) -> dict[str, Any]:
    """The one input of a command or trigger as a keyword argument; null where the function has a default leaves that.

    Raises ValidationFailed.
    """
    for name, (_, default) in signature.parameters.items():
        if value is None and default is not inspect.Parameter.empty:
            return {}
        return {name: schema.parse(value, at=at)}
    schema.parse(value, at=at)
    return {}


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a sync function in a thread, an async one here, and give its result. Raises what it raises, and Escaped."""
    with contained():
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        result = await asyncio.to_thread(in_thread, function, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result


def description_of(function: Callable[..., Any]) -> str:
    """The docstring, without its indentation."""
    return inspect.getdoc(function) or ""


def _hints(function: Callable[..., Any], *, what: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise DeclarationError(
            f"{what}: an annotation cannot be read ({error}). Annotate with types that are defined at module level."
        ) from error


def _check_kind(parameter: inspect.Parameter, *, what: str) -> None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            raise DeclarationError(f"{what}: name every parameter; *{parameter.name} has no schema.")
        case inspect.Parameter.POSITIONAL_ONLY:
            raise DeclarationError(f"{what}: {parameter.name!r} is positional-only; remove the `/`.")
        case _:
            pass


def _check_context(hint: type[Context], *, context: type[Context], index: int, name: str, what: str) -> None:
    if not issubclass(context, hint) or hint is Context:
        raise DeclarationError(f"{what}: {name!r} must be a {context.__name__}, not a {hint.__name__}.")
    if index != 0:
        raise DeclarationError(f"{what}: {name!r} is the context; make it the first parameter.")


def _default(parameter: inspect.Parameter, *, what: str) -> Any:
    if isinstance(parameter.default, FieldInfo):
        raise DeclarationError(
            f"{what}: write `{parameter.name}: Annotated[..., Field(...)] = default`; "
            "as a default, Field(...) would reach the function when it is called directly."
        )
    return parameter.default


def _returned(hint: Any, *, is_generator: bool) -> Any:
    if not is_generator or hint is Any:
        return hint
    origin = get_origin(hint)
    if origin in _ASYNC_ITERABLES:
        return (get_args(hint) or (Any,))[0]
    return Any
