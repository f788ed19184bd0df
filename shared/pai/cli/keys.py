"""`paictl keys`: the API keys of this installation, for `PAI_IDENTITY=keys`."""

import argparse
import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pai.cli.environment import settings_of
from pai.cli.screen import Screen
from pai.engine import api_keys
from pai.protocol.errors import PaiError
from pai.protocol.identity import Identity
from pai.protocol.times import iso, now_ms
from pai.settings import Settings
from pai.store.schema import check_schema
from pai.store.store import Store
from pai.store.tables import ApiKey

T = TypeVar("T")

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_LONGEST = timedelta(days=36_500)


def create(options: argparse.Namespace) -> int:
    """Prints the key alone on standard output, so that a script can take it; it cannot be shown again."""
    settings = settings_of(options)
    identity = Identity(subject=options.subject, tenant=options.tenant, trusted=options.trusted)
    lasts = None if options.expires is None else _duration(options.expires)
    key = _with_store(
        settings, lambda store: api_keys.create_key(store, options.name, identity=identity, expires_in=lasts)
    )
    print(key.text)
    if sys.stdout.isatty():
        _tell(f"This is the only time that key {key.row.key_id} is shown.")
        if "keys" not in settings.identity.split(","):
            _tell(f"The API takes keys when PAI_IDENTITY=keys is set; here it is {settings.identity}.")
    return 0


def show(options: argparse.Namespace) -> int:
    screen, now = Screen(sys.stdout), now_ms()
    for row in _with_store(settings_of(options), api_keys.list_keys):
        who = f"{row.tenant}/{row.subject}{' (trusted)' if row.trusted else ''}"
        used = "never used" if row.last_used_at is None else f"used {_day(row.last_used_at)}"
        screen.line(f"{row.key_id}  {_standing(row, now):<20}  {used:<16}  {who}  {row.name}")
    return 0


def revoke(options: argparse.Namespace) -> int:
    row = _with_store(settings_of(options), lambda store: api_keys.revoke_key(store, options.key_id))
    print(f"The key {row.key_id} ({row.name}) is revoked; what it opened ends within a minute.")
    return 0


def _standing(row: ApiKey, now: int) -> str:
    if row.revoked_at is not None:
        return f"revoked {_day(row.revoked_at)}"
    if row.expires_at is None:
        return "valid"
    return f"{'expired' if row.expires_at <= now else 'valid until'} {_day(row.expires_at)}"


def _day(ms: int) -> str:
    return iso(ms)[:10]


def _duration(text: str) -> timedelta:
    """`90d`, `12h`, `30m`. Raises PaiError."""
    match = re.fullmatch(r"([1-9][0-9]{0,7})([mhd])", text)
    lasts = int(match[1]) * _UNITS[match[2]] if match is not None else None
    if lasts is None or lasts > _LONGEST:
        raise PaiError(f"{text!r} is no time that a key can last: use 90d, 12h or 30m.")
    return lasts


def _with_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """Raises PaiError; for an older schema it says how to migrate."""

    async def run() -> T:
        async with Store.open(settings.database_url) as store:
            await check_schema(store)
            return await work(store)

    return asyncio.run(run())


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
