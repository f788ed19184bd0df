"""A transport over fake threads in memory: what a test makes happen is what a client sees."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

from fake_thread import FakeThread

from pai.client.backoff import BackoffSettings
from pai.client.transport import ThreadListOptions, ThreadWatchInput
from pai.protocol.errors import NotFound
from pai.protocol.requests import MutationResult
from pai.protocol.state import RunState, ThreadListResult, ThreadSummary, TransportState

IMPATIENT = BackoffSettings(first=timedelta(milliseconds=1), most=timedelta(milliseconds=20))


class PolledTransport:
    """`on` names what a mutation does: `transport.on["send"] = lambda thread, request: ...`, which may raise."""

    def __init__(self) -> None:
        self.threads: dict[str, FakeThread] = {}
        self.calls: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.on: dict[str, Callable[[Any, Any], Any]] = {}
        self.reads = 0
        self.before_read: Callable[[], None] | None = None
        self.closed = False
        self.manifest: dict[str, Any] = {"agent": "main"}

    async def get_manifest(self) -> dict[str, Any]:
        return self.manifest

    async def list_threads(self, options: ThreadListOptions) -> ThreadListResult:
        self.calls.append(("list", options))
        listed: ThreadListResult = self.on["list"](None, options)
        return listed

    async def get_thread_state(self, thread_id: str) -> TransportState | None:
        self.reads += 1
        if self.before_read is not None:
            self.before_read()
        await asyncio.sleep(0)
        thread = self.threads.get(thread_id)
        return None if thread is None else thread.snapshot()

    async def get_run(self, thread_id: str, run_id: str) -> RunState | None:
        state = await self.get_thread_state(thread_id)
        return None if state is None else next((run for run in state.runs if run.run_id == run_id), None)

    async def rename_thread(self, thread_id: str, request: Any, *, key: str) -> ThreadSummary:
        summary: ThreadSummary = await self._do("rename", thread_id, request, key)
        return summary

    async def delete_thread(self, thread_id: str, *, key: str) -> None:
        await self._do("delete", thread_id, None, key)

    async def send(self, thread_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("send", thread_id, request, key)

    async def regenerate(self, thread_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("regenerate", thread_id, request, key)

    async def stop_thread(self, thread_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("stop_thread", thread_id, request, key)

    async def stop_run(self, thread_id: str, run_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("stop_run", thread_id, (run_id, request), key)

    async def respond_to_action(self, thread_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("respond", thread_id, request, key)

    async def write_tool_data(self, thread_id: str, request: Any, *, key: str) -> MutationResult:
        return await self._mutate("tool_data", thread_id, request, key)

    async def recall_queued_item(self, thread_id: str, queue_item_id: str, *, key: str) -> MutationResult:
        return await self._mutate("recall", thread_id, queue_item_id, key)

    async def execute_command(self, thread_id: str, name: str, request: Any, *, key: str) -> Any:
        return await self._do("command", thread_id, (name, request), key)

    async def upload_file(self, upload: Any, *, key: str) -> Any:
        return await self._do("upload", "", upload, key)

    async def create_file_url(self, request: Any) -> Any:
        return await self._do("file_url", "", request, "")

    async def read_file(self, request: Any) -> Any:
        return await self._do("read_file", "", request, "")

    async def close(self) -> None:
        self.closed = True

    async def _mutate(self, name: str, thread_id: str, request: Any, key: str) -> MutationResult:
        run = await self._do(name, thread_id, request, key)
        thread = self.threads[thread_id]
        fields: dict[str, Any] = run if isinstance(run, dict) and "runId" not in run else {"run": run}
        return MutationResult.read({"version": thread.version, "revision": thread.revision, **fields})

    async def _do(self, name: str, thread_id: str, request: Any, key: str) -> Any:
        self.calls.append((name, request))
        self.keys.append(key)
        await asyncio.sleep(0)
        if name not in self.on:
            raise NotFound("thread")
        return self.on[name](self.threads.get(thread_id), request)


class StreamTransport(PolledTransport):
    """`connections` counts watches. `cut()` ends them all as a lost connection does; `snapshots`: as `?snapshot=1`."""

    def __init__(self, *, snapshots: bool = True) -> None:
        super().__init__()
        self.snapshots = snapshots
        self.connections = 0
        self.open = 0
        self.afters: list[Any] = []
        self.refuse: Callable[[], None] | None = None
        self._lost = asyncio.Event()
        self._arrived = asyncio.Event()

    def add(self, thread: FakeThread) -> FakeThread:
        self.threads[thread.thread_id] = thread
        self._arrived.set()
        self._arrived = asyncio.Event()
        return thread

    def cut(self) -> None:
        lost, self._lost = self._lost, asyncio.Event()
        lost.set()

    async def watch_thread(self, watch: ThreadWatchInput) -> AsyncGenerator[Any, None]:
        self.connections += 1
        self.afters.append(watch.after)
        if self.refuse is not None:
            self.refuse()
        self.open += 1
        try:
            async for event in self._events(watch, self._lost):
                if event["type"] == "ready" and watch.on_connection_established is not None:
                    watch.on_connection_established()
                yield event
        finally:
            self.open -= 1

    async def _events(self, watch: ThreadWatchInput, lost: asyncio.Event) -> AsyncGenerator[Any, None]:
        thread, after = self.threads.get(watch.thread_id), watch.after
        if thread is None:
            yield {"type": "ready", "threadId": watch.thread_id, "version": None, "sequence": 0, "revision": 0}
            while thread is None:
                if not await self._first(self._arrived, lost):
                    return
                thread = self.threads.get(watch.thread_id)
            sequence = 1 << 32
        else:
            continued = after is not None and after.version == thread.version
            sequence = after.sequence if after is not None and continued else thread.sequence
            yield {
                "type": "ready",
                "threadId": watch.thread_id,
                "version": thread.version,
                "sequence": sequence,
                "revision": thread.revision,
            }
            if not continued and self.snapshots:
                yield {"type": "snapshot", "state": thread.wire()}
            elif not continued:
                yield self._reset(thread)
        while True:
            published = thread.published
            for event in thread.after(sequence):
                if lost.is_set():
                    return
                await asyncio.sleep(0)
                sequence = event["sequence"]
                if event["type"] == "reset" and self.snapshots:
                    yield {"type": "snapshot", "state": thread.wire()}
                else:
                    yield event
                if event["type"] == "deleted":
                    return
            if not await self._first(published, lost):
                return

    @staticmethod
    def _reset(thread: FakeThread) -> dict[str, Any]:
        return {
            "type": "reset",
            "reason": "version",
            "threadId": thread.thread_id,
            "version": thread.version,
            "sequence": thread.sequence,
        }

    @staticmethod
    async def _first(event: asyncio.Event, lost: asyncio.Event) -> bool:
        """Waits for either; false when the connection was lost."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(lost.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not lost.is_set()
