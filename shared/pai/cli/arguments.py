"""The commands of `paictl` and their options. Each command's module is imported when the command runs."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn


def _lazily(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        return int(getattr(import_module(f"pai.cli.{module}"), function)(options) or 0)

    return run


class _Version(argparse.Action):
    """Reads the installed version when it is asked for, which takes longer than the rest of the command line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        parser.exit(message=f"paictl {version('pai-backend')}\n")


def parser() -> argparse.ArgumentParser:
    """Parses the command line; `options.run(options)` runs the command."""
    top = argparse.ArgumentParser(prog="paictl", description="Durable agent conversations.")
    top.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    dev = commands.add_parser("dev", help="start everything on this machine: API, worker, Redis, database")
    _agents(dev)
    _address(dev)
    dev.set_defaults(run=_lazily("dev"))

    api = commands.add_parser("api", help="run one API process")
    _agents(api)
    _address(api)
    api.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # a socket that a supervisor opened
    api.set_defaults(run=_lazily("api"))

    worker = commands.add_parser("worker", help="run one worker process")
    _agents(worker)
    worker.add_argument("--queues", "-Q", help="only these queues, comma-separated (default: all that the agents use)")
    worker.add_argument("--concurrency", "-c", type=int, help="how many steps run at the same time")
    worker.set_defaults(run=_lazily("worker"))

    database = commands.add_parser("db", help="the database's schema")
    actions = database.add_subparsers(title="actions", required=True, metavar="ACTION")
    actions.add_parser("upgrade", help="migrate to the newest schema").set_defaults(run=_lazily("database", "upgrade"))
    actions.add_parser("current", help="show the schema's revision").set_defaults(run=_lazily("database", "current"))

    _keys(commands.add_parser("keys", help="the API keys that PAI_IDENTITY=keys takes"))

    chat = commands.add_parser("chat", help="talk to an agent in the terminal")
    chat.add_argument("--agent", default="main", help="which agent (default: main)")
    chat.add_argument("--thread", help="go on with this thread (default: a new one)")
    chat.add_argument("--url", help="the server (default: PAI_URL, or http://127.0.0.1:8460)")
    chat.add_argument("--token", help="a key or a token, sent as a bearer token (default: PAI_TOKEN)")
    chat.add_argument("--header", "-H", action="append", metavar="NAME: VALUE", help="send this header, too")
    chat.add_argument("message", nargs="*", help="say this and leave when it is answered")
    chat.set_defaults(run=_lazily("chat"))

    doctor = commands.add_parser("doctor", help="check what PAI needs, and say what to do")
    _agents(doctor)
    doctor.set_defaults(run=_lazily("doctor"))
    return top


def _keys(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key; it is shown this once")
    create.add_argument("name", help="what the key is for, for people")
    create.add_argument("--subject", required=True, help="whose threads it reaches")
    create.add_argument("--tenant", default="default", help="the tenant of the subject (default: default)")
    create.add_argument("--trusted", action="store_true", help="it may act for every owner: for servers only")
    create.add_argument("--expires", metavar="TIME", help="how long it lasts: 90d, 12h, 30m (default: for ever)")
    create.set_defaults(run=_lazily("keys", "create"))
    actions.add_parser("list", help="show all keys, without their secrets").set_defaults(run=_lazily("keys", "show"))
    revoke = actions.add_parser("revoke", help="end a key, and within a minute what it opened")
    revoke.add_argument("key_id", metavar="KEY_ID", help="as `paictl keys list` shows it")
    revoke.set_defaults(run=_lazily("keys", "revoke"))


def _agents(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "agents",
        nargs="?",
        metavar="MODULE:REGISTRY",
        help="your agents, such as my_app.agents:registry (default: PAI_AGENTS, or the demo)",
    )


def _address(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="the address to listen on (default: PAI_HOST, or 127.0.0.1)")
    command.add_argument("--port", type=int, help="the port to listen on (default: PAI_PORT, or 8460)")
