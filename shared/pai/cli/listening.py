"""The socket the API answers on. The supervisor opens it, so that it outlives an API process that is started again."""

import errno
import ipaddress
import socket

from pai.protocol.errors import PaiError

_PORT_PROBLEMS = {
    errno.EADDRINUSE: "is in use by another process (another `paictl dev`?)",
    errno.EACCES: "needs more rights than you have",
}


class AddressUnusable(PaiError):
    """Somebody else listens there, or this host has no such address."""

    code = "address_unusable"
    title = "The address cannot be listened on"


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises AddressUnusable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        if error.errno in _PORT_PROBLEMS:
            raise AddressUnusable(
                f"Port {port} on {host} {_PORT_PROBLEMS[error.errno]}. "
                f"Take another: `--port {_other(port)}`, or PAI_PORT={_other(port)}."
            ) from error
        raise AddressUnusable(
            f"{host} is no address of this machine ({error.strerror or error}). Take another: `--host 127.0.0.1`."
        ) from error
    return opened


def _other(port: int) -> int:
    return port + 1 if 1024 <= port < 65535 else 8460


def address_of(opened: socket.socket) -> str:
    """The URL that reaches the socket from this host."""
    host, port = opened.getsockname()[:2]
    if ipaddress.ip_address(host.split("%")[0]).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
