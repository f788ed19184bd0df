"""An application's own function as the resolver."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pai.contract import contained, in_thread
from pai.protocol.errors import DeclarationError, Unauthenticated
from pai.protocol.identity import Identity
from pai_api.identity.resolver import Resolver


def load(name: str) -> Resolver:
    """The function `module:function`; a plain one runs in a thread. Raises DeclarationError."""
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module_name), attribute) if attribute else None
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(f"PAI_IDENTITY={name}: {error}") from error
    except Exception as error:
        raise DeclarationError(
            f"PAI_IDENTITY={name}: importing {module_name!r} failed with {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise DeclarationError(f"PAI_IDENTITY={name}: expected `anonymous`, `jwt`, `keys` or `module:function`.")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise DeclarationError(f"PAI_IDENTITY={name}: it must take one argument, the request.") from None
    except ValueError:
        pass  # something that Python cannot look into
    return Custom(function, name=name)


class Custom:
    """Checks what the function answers: None means that nobody was recognised."""

    def __init__(self, function: Callable[[Request], Any], *, name: str) -> None:
        self._function = function
        self._name = name
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  an instance may define an async __call__
        )

    async def __call__(self, request: Request, /) -> Identity:
        with contained():
            if self._is_async:
                answer = await self._function(request)
            else:
                answer = await run_in_threadpool(in_thread, self._function, request)
        if answer is None:
            raise Unauthenticated
        if not isinstance(answer, Identity):
            raise TypeError(f"PAI_IDENTITY={self._name} answered {type(answer).__name__} instead of an Identity")
        return answer
