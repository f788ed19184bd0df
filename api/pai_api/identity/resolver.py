"""What a way to know callers must be able to do."""

from collections.abc import Awaitable
from typing import Protocol

from starlette.requests import Request

from pai.protocol.identity import Identity


class Resolver(Protocol):
    """Answers who sent a request. Raises Unauthenticated or Forbidden.

    While a watch is open it is asked again with the same request.
    """

    def __call__(self, request: Request, /) -> Awaitable[Identity]: ...
