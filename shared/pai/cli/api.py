"""`paictl api`: one API process on uvicorn."""

import argparse
import asyncio
import os
import signal
import socket
from contextlib import suppress

import uvicorn

from pai.cli.environment import settings_of
from pai.cli.lifeline import announce_ready
from pai.cli.listening import address_of, listen
from pai.cli.logs import log_to_stderr
from pai.contract import Registry
from pai.heap import keep_what_started
from pai.protocol.errors import Unavailable
from pai.settings import Settings
from pai.store.schema import check_schema
from pai.store.store import Store
from pai_api.app import create_app

# Watches end by themselves when the stop begins; what is left then are requests of a few milliseconds.
_GRACEFUL_SECONDS = 5
# Longer than load balancers keep theirs: whoever closes first must not be the one that is sent the next request.
_KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        keep_what_started()
        announce_ready()

    def stop_soon(self) -> None:
        self.should_exit = True


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, which let open requests end. Exit code 3 when the application does not start.

    Raises PaiError for what a person must mend first.
    """
    settings = settings_of(options)
    log_to_stderr("api", level=settings.log_level)
    app = create_app(settings, Registry.load(settings.agents))
    asyncio.run(_refuse_an_older_schema(settings))
    opened = listen(settings.host, settings.port) if options.fd is None else socket.socket(fileno=options.fd)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    server = _Server(config)
    # uvicorn listens to signals from its start on, and raises those that it caught once more when it is done.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop_soon())
    if options.fd is None:
        print(f"PAI API on {address_of(opened)} (process {os.getpid()})", flush=True)
    server.run(sockets=[opened])
    return 0 if server.started or server.should_exit else 3


async def _refuse_an_older_schema(settings: Settings) -> None:
    """The application does so, too, but uvicorn tells with a traceback. A database that is away is no reason."""
    with suppress(Unavailable):
        async with Store.open(settings.database_url) as store:
            await check_schema(store)
