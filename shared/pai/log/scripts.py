"""The Lua scripts: loaded from the package, one typed function each, run by their hash."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from pai.log.batches import LiveBatch, TransactionBatch
from pai.log.entries import encode_lines
from pai.log.errors import mapped_errors
from pai.log.keys import live_channel, log_key, meta_key, rate_key


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str


@cache
def _script(*names: str) -> Script:
    text = "\n".join((files("pai.log") / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a script."""

    script: Script
    keys: Sequence[bytes]
    args: Sequence[bytes | str | int]


def publish(batch: LiveBatch | TransactionBatch, *, ttl: int) -> Call:
    """-> {status, first sequence, last sequence}. Raises ValueError for entries that hold no JSON."""
    live = isinstance(batch, LiveBatch)
    lists: Sequence[bytes] = ()
    args: list[bytes | str | int] = [
        batch.epoch,
        int(batch.opening),
        batch.seen,
        ttl,
        batch.reason or "",
        "" if batch.revision is None else batch.revision,
        encode_lines(batch.entries, None if live else batch.revision),
    ]
    if isinstance(batch, LiveBatch):
        script = _script("append", "publish_live")
        args += [batch.number, batch.attempt, batch.batch]
    else:
        script = _script("append", "publish_transaction")
        args += [batch.floor, ",".join(map(str, batch.finished)), int(batch.forced)]
        args += [value for _, value in batch.pushes]
        lists = [key for key, _ in batch.pushes]
    version = batch.version
    return Call(script, (meta_key(version), log_key(version), live_channel(version), *lists), args)


def fence(version: str, *, epoch: int, fences: Mapping[int, int]) -> Call:
    """-> {status, last sequence, last revision}."""
    pairs = [value for pair in fences.items() for value in pair]
    return Call(_script("fence"), (meta_key(version),), [epoch, *pairs])


def read(version: str, *, lowest: int, limit: int | None, positions: Mapping[str, int]) -> Call:
    """-> {state, epoch, n, revision, oldest, lines}."""
    pairs: list[str | int] = [value for pair in positions.items() for value in pair]
    limited = -1 if limit is None else limit
    return Call(_script("read"), (meta_key(version), log_key(version)), [lowest, limited, *pairs])


def trim(version: str, *, below: int, keep: int) -> Call:
    """-> how many entries went."""
    return Call(_script("trim"), (meta_key(version), log_key(version)), [below, keep])


def delete(version: str, *, ttl: int) -> Call:
    """-> the sequence of the event that says so."""
    return Call(_script("delete"), (meta_key(version), log_key(version), live_channel(version)), [ttl])


def take(owner: str, *, per_second: int, burst: int) -> Call:
    """-> milliseconds to wait; 0: one request is counted."""
    return Call(_script("take"), (rate_key(owner),), [per_second, burst])


async def run(redis: "Redis", calls: Sequence[Call], messages: Sequence[tuple[bytes, bytes]] = ()) -> list[Any]:
    """The replies of some calls that are sent in one round trip; a call that failed is represented by its exception.

    `messages`: pairs of channel and payload, which travel along.

    A server that restarted does not know the scripts. Those calls, and only those, were certainly not executed, so they
    are loaded and sent once more. Raises LogUnavailable when the connection fails: then nobody knows what was executed.
    """
    with mapped_errors():
        replies = await _round_trip(redis, calls, messages)
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            for script in {calls[index].script for index in unknown}:
                await redis.script_load(script.text)
            again = await _round_trip(redis, [calls[index] for index in unknown])
            for index, reply in zip(unknown, again, strict=True):
                replies[index] = reply
    return replies


async def _round_trip(redis: "Redis", calls: Sequence[Call], messages: Sequence[tuple[bytes, bytes]] = ()) -> list[Any]:
    async with redis.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.execute_command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
        for channel, payload in messages:
            pipeline.publish(channel, payload)
        return list(await pipeline.execute(raise_on_error=False))[: len(calls)]
