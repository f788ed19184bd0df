"""Everybody is the same person: for development on one machine."""

import ipaddress

from starlette.requests import Request

from pai.protocol.errors import DeclarationError, Unauthenticated
from pai.protocol.identity import Identity
from pai.settings import Settings

ANONYMOUS = Identity(subject="anonymous")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Anonymous:
    """Refuses to start on, and to answer at, an address that others can reach, unless the settings allow it.

    The second check is for a server that was bound by its own command line: it tells where each connection arrived.
    """

    def __init__(self, settings: Settings) -> None:
        if not settings.allow_anonymous and not is_loopback(settings.host):
            raise DeclarationError(
                f"Anonymous callers are not accepted on {settings.host}: name a resolver "
                "with PAI_IDENTITY=module:function, or set PAI_ALLOW_ANONYMOUS=1 when everybody who can reach this "
                "address may do everything."
            )
        self._everywhere = settings.allow_anonymous
        self._local: set[str] = set()

    async def __call__(self, request: Request, /) -> Identity:
        if not self._everywhere:
            self._check(request.scope.get("server"))
        return ANONYMOUS

    def _check(self, server: tuple[str, int | None] | None) -> None:
        # A unix socket has a path and no port: whoever may open it is on this machine.
        if server is None or server[1] is None or server[0] in self._local:
            return
        if not is_loopback(server[0]):
            raise Unauthenticated("Anonymous callers are accepted on this machine only.")
        self._local.add(server[0])
