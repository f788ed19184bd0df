"""One supervised pub/sub connection.

A plain listen loop ends silently when the server restarts, and a connection through a dead router stays silent for
ever. So the listener pings when nothing comes, reconnects with backoff, subscribes again, and says so: whoever uses it
then reads what was missed.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from pai.log.backoff import Backoff
from pai.log.ending import end
from pai.log.keys import KEEPALIVE_CHANNEL

PING_AFTER = timedelta(seconds=5)

_SUBSCRIBE = "SUBSCRIBE"
_UNSUBSCRIBE = "UNSUBSCRIBE"
_logger = logging.getLogger(__name__)


class Listener:
    """Tells about messages and about subscriptions that came into force.

    `on_message(channel, data)` is called for every message; `on_subscribed(channel, other_server)` once after
    `subscribe` and again after every reconnect, `other_server` saying that the server is not the one of the connection
    before. Both are called in the event loop and must not block.
    """

    def __init__(
        self,
        redis: "Redis",
        *,
        on_message: Callable[[bytes, bytes], None],
        on_subscribed: Callable[[bytes, bool], None],
        ping_after: timedelta = PING_AFTER,
    ) -> None:
        self._redis = redis
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._ping_seconds = ping_after.total_seconds()
        self._channels: dict[bytes, None] = {}
        self._requests: list[tuple[str, bytes]] = []
        self._requested = asyncio.Event()
        self._unconfirmed: dict[bytes, int] = {}
        self._server: str | None = None
        self._other_server = False
        self._connected = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._supervise(), name="pai-listener")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._task)
        self._task = None

    @property
    def connected(self) -> bool:
        return self._connected

    def subscribe(self, channel: bytes) -> None:
        """Asks for a channel, now or as soon as there is a connection."""
        self._channels[channel] = None
        self._request(_SUBSCRIBE, channel)

    def unsubscribe(self, channel: bytes) -> None:
        self._channels.pop(channel, None)
        self._request(_UNSUBSCRIBE, channel)

    def _request(self, command: str, channel: bytes) -> None:
        # Sent by a task of the listener: a watcher that is cancelled while it sends would take the connection down.
        if self._connected:
            self._enqueue(command, channel)

    def _enqueue(self, command: str, channel: bytes) -> None:
        if command == _SUBSCRIBE:
            # Counted before anything is sent, so that the answer to an earlier request is never taken for the last one.
            self._unconfirmed[channel] = self._unconfirmed.get(channel, 0) + 1
        self._requests.append((command, channel))
        self._requested.set()

    async def _supervise(self) -> None:
        backoff = Backoff(_logger, "The subscriptions to the event log were lost")
        while True:
            connection = writer = None
            delay = 0.0
            try:
                connection = self._new_connection()
                await connection.connect()  # type: ignore[no-untyped-call]
                await self._notice_server(connection)
                self._unconfirmed.clear()
                self._requests.clear()
                for channel in (KEEPALIVE_CHANNEL, *self._channels):
                    self._enqueue(_SUBSCRIBE, channel)
                self._connected = True
                writer = asyncio.create_task(self._write(connection), name="pai-listener-writer")
                await self._read(connection, backoff)
            except Exception as error:
                delay = backoff.failed(error)
            finally:
                self._connected = False
                await end(writer)
                if connection is not None:
                    with suppress(Exception):
                        await connection.disconnect(nowait=True)
            await asyncio.sleep(delay)

    def _new_connection(self) -> AbstractConnection:
        pool = self._redis.connection_pool
        # RESP2, because there messages are ordinary replies; maintenance notifications would need RESP3. No retries,
        # because the supervising loop is the retry.
        settings = {
            **{name: value for name, value in pool.connection_kwargs.items() if not name.startswith("maint")},
            "protocol": 2,
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),
            "health_check_interval": 0,
        }
        return pool.connection_class(**settings)

    async def _notice_server(self, connection: AbstractConnection) -> None:
        """A server with another run id may have an older state: continuity of numbers proves nothing there."""
        await connection.send_command("INFO", "server", check_health=False)
        try:
            info: Any = await connection.read_response()
        except ResponseError:
            return  # not every server and user has INFO; then a loss is found by epoch and revision alone
        lines = bytes(info).decode("utf-8", "replace").splitlines()
        server = next((line.partition(":")[2] for line in lines if line.startswith("run_id:")), None)
        self._other_server = self._server is not None and server != self._server
        self._server = server

    async def _write(self, connection: AbstractConnection) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            requests, self._requests = self._requests, []
            for command, group in groupby(requests, key=lambda request: request[0]):
                channels = [channel for _, channel in group]
                # A failed write closes the connection, which the reading side notices.
                await connection.send_command(command, *channels, check_health=False)

    async def _read(self, connection: AbstractConnection, backoff: Backoff) -> None:
        pinged = False
        while True:
            reply: Any = await connection.read_response(timeout=self._ping_seconds, disconnect_on_error=False)
            if reply is None:
                if pinged or not connection.is_connected:
                    raise RedisConnectionError("no answer to a ping")
                await connection.send_command("PING", check_health=False)
                pinged = True
                continue
            pinged = False
            match reply[0]:
                case b"message":
                    self._deliver(self._on_message, reply[1], reply[2])
                case b"subscribe":
                    backoff.succeeded()
                    self._confirm(reply[1])

    def _confirm(self, channel: bytes) -> None:
        waiting = self._unconfirmed.pop(channel, 1) - 1
        if waiting > 0:
            # This answers an earlier request: an UNSUBSCRIBE follows, and then the one that counts.
            self._unconfirmed[channel] = waiting
        elif channel in self._channels:
            self._deliver(self._on_subscribed, channel, self._other_server)

    def _deliver(self, callback: Callable[[bytes, Any], None], channel: bytes, argument: Any) -> None:
        try:
            callback(channel, argument)
        except Exception:
            _logger.exception("A message of %r could not be handled", channel)
