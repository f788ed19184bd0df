"""The guard that keeps tests on this host: no model provider, and nobody else, can be asked for real."""

import ipaddress
import sys
from typing import Any

_LOCAL_NAMES = frozenset({"localhost", "testserver", ""})


class OutsideRequest(RuntimeError):
    """A test tried to talk to another host."""


def stay_on_loopback() -> None:
    """From now on, and for good, this process reaches loopback addresses and unix sockets only."""
    sys.addaudithook(_refuse_others)


def _refuse_others(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        address = args[1]
        if isinstance(address, tuple) and not is_local(address[0]):
            raise OutsideRequest(f"a test must not connect to {address[0]}; start a fake server on loopback")
    elif event == "socket.getaddrinfo":
        host = args[0]
        if host is not None and not is_local(host):
            raise OutsideRequest(f"a test must not look up {host!r}; start a fake server on loopback")


def is_local(host: str | bytes) -> bool:
    """Whether the name or address is this host's own."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in _LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
