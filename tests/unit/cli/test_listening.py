"""The socket of the API, and what a person is told when it cannot be had."""

import pytest

from pai.cli.listening import AddressUnusable, address_of, listen


def test_the_address_reaches_the_socket() -> None:
    with listen("127.0.0.1", 0) as opened:
        assert address_of(opened) == f"http://127.0.0.1:{opened.getsockname()[1]}"


def test_a_socket_on_every_address_is_reached_on_loopback() -> None:
    with listen("0.0.0.0", 0) as opened:
        assert address_of(opened).startswith("http://127.0.0.1:")


def test_a_port_in_use_names_the_fix() -> None:
    with listen("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        with pytest.raises(AddressUnusable, match=rf"Port {port} .* in use .*--port {port + 1}.* PAI_PORT={port + 1}"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_names_the_fix() -> None:
    with pytest.raises(AddressUnusable, match=r"192\.0\.2\.1 is no address of this machine"):
        listen("192.0.2.1", 0)
