"""What the doctor looks at. Each check asks the real thing, briefly, and changes nothing."""

import asyncio
import difflib
import http.client
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pai.cli.listening import AddressUnusable, listen
from pai.contract import Registry
from pai.protocol.errors import PaiError
from pai.settings import Settings

_PATIENCE_SECONDS = 5.0
_OLDEST_REDIS = (6, 2)
_OTHER_VARIABLES = frozenset(
    {"PAI_URL", "PAI_TOKEN", "PAI_FAULTS", "PAI_ANTHROPIC_BASE_URL", "PAI_GOOGLE_BASE_URL", "PAI_OPENAI_BASE_URL"}
)


class Level(StrEnum):
    good = "good"
    note = "note"
    bad = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """`todo` is what to do about it. `fatal`: no process can do its work before that."""

    level: Level
    what: str
    said: str
    todo: str = ""
    fatal: bool = False


def environment(settings: Settings) -> Iterator[Finding]:
    known = {f"PAI_{name.upper()}" for name in type(settings).model_fields} | _OTHER_VARIABLES
    for name in sorted(os.environ):
        if name.startswith("PAI_") and name not in known and (like := difflib.get_close_matches(name, known, n=1)):
            yield Finding(Level.note, "settings", f"{name} is no setting, and is ignored", f"Do you mean {like[0]}?")


def agents(settings: Settings) -> Iterator[Finding]:
    try:
        registry = Registry.load(settings.agents)
    except PaiError as error:
        yield Finding(Level.bad, "agents", error.detail, "Mend the module, or name another.")
        return
    names = ", ".join(agent.name for agent in registry)
    if len(registry):
        yield Finding(Level.good, "agents", f"{names} from {settings.agents}")
    else:
        yield Finding(Level.bad, "agents", f"{settings.agents} is empty", "Registry(agent, ...)")


def model_keys(settings: Settings) -> Iterator[Finding]:
    from pai.models.resolve import resolve_model

    try:
        registry = Registry.load(settings.agents)
    except PaiError:
        return  # said already
    for agent in registry:
        if not isinstance(agent.model, str):
            continue
        try:
            resolve_model(agent.model)
        except PaiError as error:
            yield Finding(Level.bad, "model", f"{agent.name}: {agent.model}", error.detail)
        else:
            yield Finding(Level.good, "model", f"{agent.name}: {agent.model}")


def database(settings: Settings) -> Iterator[Finding]:
    from pai.store.database import database_url
    from pai.store.schema import current_revision, head_revision

    try:
        url = database_url(settings.database_url)
        if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
            yield Finding(Level.note, "database", f"{url.database} does not exist yet", "`paictl dev` makes it.")
            return
        current, head = current_revision(settings.database_url), head_revision()
    except PaiError as error:
        reason = str(getattr(error.__cause__, "orig", None) or error.detail).splitlines()[0]
        yield Finding(Level.bad, "database", reason, "Start it, or correct PAI_DATABASE_URL.")
        return
    where = url.render_as_string(hide_password=True)
    if current == head:
        yield Finding(Level.good, "database", f"{where} with schema {current}")
    else:
        said = f"{where} has schema {current or 'none'}, and {head} is needed"
        yield Finding(Level.bad, "database", said, "Run `paictl db upgrade`.")


def redis(settings: Settings) -> Iterator[Finding]:
    from redis import Redis, RedisError

    from pai.broker import redis_url

    url = redis_url(settings)
    options = {"socket_connect_timeout": _PATIENCE_SECONDS, "socket_timeout": _PATIENCE_SECONDS}
    try:
        with Redis.from_url(url, decode_responses=True, **options) as client:
            info = client.info("server")
            policy = client.info("memory").get("maxmemory_policy", "noeviction")
            client.eval("return 1", 0)
    except (RedisError, OSError, ValueError) as error:
        if settings.redis_url is None:
            yield _embedded()
        else:
            said = f"{_without_password(url)}: {error}"
            yield Finding(Level.bad, "redis", said, "Start it, or correct PAI_REDIS_URL.", fatal=True)
        return
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version", "0"))
    said = f"{_without_password(url)} is {name} {version}"
    if tuple(int(number) for number in version.split(".")[:2]) < _OLDEST_REDIS:
        yield Finding(Level.bad, "redis", said, "Redis 6.2 or newer is needed.", fatal=True)
    elif policy != "noeviction":
        todo = "CONFIG SET maxmemory-policy noeviction: an evicted key sends every watcher to a new snapshot."
        yield Finding(Level.bad, "redis", f"{said}, maxmemory-policy {policy}", todo)
    else:
        yield Finding(Level.good, "redis", said)


def _embedded() -> Finding:
    from pai.log.embedded import NoServer, server_binary

    try:
        binary = server_binary()
    except NoServer as error:
        return Finding(Level.bad, "redis", "there is no server, and none to start", error.detail, fatal=True)
    return Finding(Level.note, "redis", f"embedded, not running ({binary})", "`paictl dev` starts it.")


def broker(settings: Settings) -> Iterator[Finding]:
    if settings.broker_url is None:
        return  # it is the Redis that was looked at
    from kombu.connection import Connection

    where = _without_password(settings.broker_url)
    try:
        with Connection(settings.broker_url, connect_timeout=_PATIENCE_SECONDS) as connection:  # type: ignore[no-untyped-call]
            connection.ensure_connection(max_retries=1, timeout=_PATIENCE_SECONDS)
    except Exception as error:  # each of kombu's transports raises its own
        yield Finding(Level.bad, "broker", f"{where}: {error}", "Start it, or correct PAI_BROKER_URL.", fatal=True)
    else:
        yield Finding(Level.good, "broker", where)


def files(settings: Settings) -> Iterator[Finding]:
    from pai.files.provider import provider_of

    async def ask() -> None:
        provider = provider_of(settings)
        try:
            # Of a file that nobody has: it needs the same rights.
            await provider.delete("looked-at-by-the-doctor")
        finally:
            await provider.close()

    try:
        asyncio.run(ask())
    except PaiError as error:
        todo = "Correct PAI_FILES and PAI_S3_*, and give this process its rights."
        yield Finding(Level.bad, "files", f"{settings.files}: {error.detail}", todo, fatal=True)
        return
    if not settings.files.startswith("s3://") and settings.database_url.startswith("postgres"):
        todo = "Every API process and worker must see this folder; otherwise use PAI_FILES=s3://bucket."
        yield Finding(Level.note, "files", f"in the folder {settings.files}", todo)
    else:
        yield Finding(Level.good, "files", settings.files)


def port(settings: Settings) -> Iterator[Finding]:
    where = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except AddressUnusable as error:
        status = _readiness(settings)
        if status == 200:
            yield Finding(Level.good, "api", f"answers on {where} and is ready")
        elif status == 503:
            yield Finding(Level.bad, "api", f"answers on {where} and is not ready", f"curl http://{where}/readyz")
        else:
            yield Finding(Level.bad, "api", f"{where} is taken by something else", error.detail)
    else:
        yield Finding(Level.note, "api", f"not running; {where} is free", "`paictl dev`, or `paictl api`.")


def _readiness(settings: Settings) -> int | None:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    connection = http.client.HTTPConnection(host, settings.port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def identity(settings: Settings) -> Iterator[Finding]:
    try:
        from pai_api.identity import gate
    except ImportError:  # workers run without the API's libraries
        return
    try:
        gate(settings)
    except PaiError as error:
        todo = "Correct PAI_IDENTITY and the settings of its kind."
        yield Finding(Level.bad, "identity", error.detail, todo, fatal=True)
        return
    names = [name.strip() for name in settings.identity.split(",")]
    if names != ["anonymous"]:
        yield Finding(Level.good, "identity", settings.identity)
    if "jwt" in names and settings.jwt_jwks is not None:
        yield _key_set(settings.jwt_jwks)
    if "jwt" in names and not (settings.jwt_issuer and settings.jwt_audience):
        said = "tokens that the same provider made for other services are accepted"
        yield Finding(Level.note, "identity", said, "Set PAI_JWT_ISSUER and PAI_JWT_AUDIENCE.")


def _key_set(source: str) -> Finding:
    from pai_api.identity.key_set import KeySet

    try:
        count = asyncio.run(KeySet(source, cache_seconds=_PATIENCE_SECONDS).read())
    except ValueError as error:
        todo = "Correct PAI_JWT_JWKS, or make it reachable from here."
        return Finding(Level.bad, "jwks", str(error), todo, fatal=True)
    return Finding(Level.good, "jwks", f"{source} has {count} {'key' if count == 1 else 'keys'}")


def safety(settings: Settings) -> Iterator[Finding]:
    if settings.identity == "anonymous" and settings.allow_anonymous:
        todo = "Choose who may: PAI_IDENTITY=jwt, keys or module:function, unless all who reach it may do everything."
        yield Finding(Level.note, "identity", "everybody is the same anonymous person", todo)
    if sys.platform == "win32":
        yield Finding(Level.note, "platform", "Windows is not supported", "Use WSL.")


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2]
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:***@{host}").geturl()
