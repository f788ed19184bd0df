"""`paictl dev`: everything on this machine in one command, ready when it says so, and gone when it is told."""

import argparse
import asyncio
import fcntl
import http.client
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pai.cli.called import command
from pai.cli.checks import Level, broker, files, identity, model_keys, redis
from pai.cli.child import ChildFailed, ChildSpec
from pai.cli.environment import settings_of
from pai.cli.listening import address_of, listen
from pai.cli.supervisor import Supervisor, supervise
from pai.contract import Registry
from pai.log.embedded import EmbeddedRedis
from pai.protocol.errors import PaiError
from pai.settings import Settings
from pai.store.schema import upgrade

# A person who pressed Ctrl-C waits: what is still streaming then goes on after the next start.
_DRAIN_SECONDS = "2"
_READY_WITHIN = timedelta(seconds=60)
DEMO = Settings.model_fields["agents"].default


def run(options: argparse.Namespace) -> int:
    """Runs until SIGINT, SIGTERM or SIGHUP. Raises PaiError for what a person must mend first."""
    settings = settings_of(options)
    registry = Registry.load(settings.agents)
    _refuse(settings)
    with _alone_in(settings.home), listen(settings.host, settings.port) as opened:
        upgrade(settings.database_url)
        asyncio.run(_serve(settings, registry, opened, EmbeddedRedis(settings.home, url=settings.redis_url)))
    _tell("Stopped.")
    return 0


def _refuse(settings: Settings) -> None:
    """Raises PaiError for settings with which the processes would end as soon as they start, or never be ready."""
    for check in (identity, files, redis, broker):
        for finding in check(settings):
            if finding.fatal:
                raise PaiError(f"{finding.what}: {finding.said.rstrip('.')}. {finding.todo}")


async def _serve(settings: Settings, registry: Registry, opened: socket.socket, embedded: EmbeddedRedis) -> None:
    environment = _environment(settings, opened, embedded)
    drain = timedelta(seconds=float(environment["PAI_DRAIN_SECONDS"]))
    paictl = (sys.executable, "-m", "pai.cli")
    specs = [
        ChildSpec(
            name="api",
            argv=(*paictl, "api", "--fd", str(opened.fileno())),
            environment=environment,
            inherited_fds=(opened.fileno(),),
        ),
        ChildSpec(
            name="worker", argv=(*paictl, "worker"), environment=environment, grace=drain + timedelta(seconds=10)
        ),
    ]
    async with supervise(specs, report=_tell, around=embedded) as supervisor, _kept_up(embedded):
        if await supervisor.ready() and await _answers(supervisor, address_of(opened)):
            print(greeting(settings, registry, address_of(opened)), flush=True)
            await supervisor.stopped.wait()
        opened.close()  # nobody waits for an answer that will not come
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything has ended, and this process is about to


def _environment(settings: Settings, opened: socket.socket, embedded: EmbeddedRedis) -> Mapping[str, str]:
    """What the children see: the same choices, made explicit."""
    return {
        "PAI_DRAIN_SECONDS": _DRAIN_SECONDS,
        "PAI_LOG_LEVEL": "WARNING",
        **os.environ,
        "PAI_AGENTS": settings.agents,
        "PAI_HOME": str(settings.home),
        "PAI_HOST": settings.host,
        "PAI_PORT": str(opened.getsockname()[1]),
        "PAI_DATABASE_URL": settings.database_url,
        "PAI_REDIS_URL": embedded.url(),
    }


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """The data folder, held by this process. Raises PaiError when another one has it."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / "dev.lock").open("a+")
    except OSError as error:
        raise PaiError(f"{home} cannot be used ({error.strerror}). Name another folder with PAI_HOME.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise PaiError(
                f"`paictl dev` runs in {home} already (process {file.read().strip() or 'unknown'}). "
                "Stop it, or use another folder: PAI_HOME=..."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@asynccontextmanager
async def _kept_up(embedded: EmbeddedRedis) -> AsyncIterator[None]:
    """The server that was started here is started again when it ends: what it held is in the database."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(0.5)
            try:
                if embedded.revive():
                    _tell("The embedded Redis ended and was started again.")
            except PaiError as error:
                _tell(f"The embedded Redis ended: {error.detail}")

    keeper = asyncio.create_task(keep(), name="keep redis")
    try:
        yield
    finally:
        keeper.cancel()


async def _answers(supervisor: Supervisor, url: str) -> bool:
    """Wait until a request would be served; False when told to stop. Raises ChildFailed when it takes a minute."""
    deadline = asyncio.get_running_loop().time() + _READY_WITHIN.total_seconds()
    while not supervisor.stopped.is_set():
        status, body = await asyncio.to_thread(_get, url, "/readyz")
        if status == 200:
            return True
        if asyncio.get_running_loop().time() > deadline:
            raise ChildFailed(f"The API is up but not ready: {body or 'no answer'}.")
        await asyncio.sleep(0.1)
    return False


def _get(url: str, path: str) -> tuple[int, str]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def greeting(settings: Settings, registry: Registry, url: str) -> str:
    """What a person can do now; every line works as it stands, once who asks is filled in where that matters."""
    agent = "main" if "main" in registry else next(agent.name for agent in registry)
    chat = [command(), "chat"]
    chat += [] if agent == "main" else ["--agent", agent]
    chat += [] if urlsplit(url).port == Settings.model_fields["port"].default else ["--url", url]
    thread = f"{url}/api/pai/{agent}/threads/hello"
    asked = "What is the weather in Paris?" if settings.agents == DEMO else "Hello"
    message = f'{{"message": {{"parts": [{{"type": "text", "text": "{asked}"}}]}}}}'
    known = settings.identity == "anonymous"
    who = "" if known else " -H 'authorization: Bearer …'"
    if not known:
        chat.insert(0, "PAI_TOKEN=…")
    return f"""
PAI is ready at {url} with {", ".join(agent.name for agent in registry)}; its data is in {settings.home}.
Ctrl-C stops it, and the next start goes on where it was.

Chat:   {" ".join(chat)}
Send:   curl{who} -H 'content-type: application/json' -d '{message}' {thread}/send
Watch:  curl -N{who} '{thread}/watch?snapshot=1'
{_warnings(settings)}"""


def _warnings(settings: Settings) -> str:
    """What every run of an agent would fail with."""
    bad = [finding for finding in model_keys(settings) if finding.level is Level.bad]
    return "".join(f"\nWarning: {finding.said} cannot answer. {finding.todo}" for finding in bad) + "\n" * bool(bad)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
