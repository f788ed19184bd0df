"""One decision on one thread: a SQL transaction that holds the thread's row, and what it will publish.

Everything that changes a thread goes through here, so that locking, the revision, the update event and the order of
writes are written once. Nothing is awaited inside but the database.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import BigInteger, Executable, Table, Update, bindparam, select, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.ext.asyncio import AsyncConnection

from pai.engine import records
from pai.engine.file_uses import FileUses
from pai.engine.flags import INSERT_FLAG
from pai.engine.locked import MESSAGE_BY_ID, STEPS_LIVE, Locked
from pai.engine.publication import Publication
from pai.engine.receipts import Request
from pai.fold import Fold
from pai.log import entries
from pai.log.entries import ResetReason
from pai.protocol.events import Changes
from pai.protocol.ids import new_id
from pai.protocol.json import dumps
from pai.protocol.state import FoldingState
from pai.protocol.times import iso, now_ms
from pai.store.clock import FromNow
from pai.store.clock import now_ms as clock_ms
from pai.store.store import execute_all, fetch_all
from pai.store.tables import (
    Flag,
    FlagTable,
    Journal,
    JournalTable,
    Message,
    MessageTable,
    QueueItem,
    QueueItemTable,
    ReceiptTable,
    Record,
    Run,
    RunTable,
    Step,
    StepKind,
    StepState,
    StepTable,
    Thread,
    ThreadTable,
    table_of,
)

if TYPE_CHECKING:
    from pai.contract import Agent
    from pai.engine.runtime import Runtime

_THREAD, _RUN, _MESSAGE = table_of(ThreadTable), table_of(RunTable), table_of(MessageTable)
_STEP, _QUEUE = table_of(StepTable), table_of(QueueItemTable)

FIRST_REDISPATCH_MS = 5_000
"""How long a dispatched step may stay unclaimed before the sweep dispatches it again."""

SHOWN = ("all", "ui")
"""The visibilities of messages that people see; others never enter the log."""
SEEN = ("all", "model")
"""The visibilities of messages that a model sees."""

DEADLINE_GRACE_MS = 30_000
"""The process ends a step that takes too long by itself; only one that cannot is left to its lease."""

_TABLES: dict[type[Record], Table] = {
    Thread: _THREAD,
    Run: _RUN,
    Message: _MESSAGE,
    Step: _STEP,
    QueueItem: _QUEUE,
    Journal: table_of(JournalTable),
    Flag: table_of(FlagTable),
}
_KEYS = {cls: tuple(column.name for column in table.primary_key) for cls, table in _TABLES.items()}

_RUN_BY_ID = select(_RUN).where(_RUN.c.run_id == bindparam("run_id"), _RUN.c.version == bindparam("version"))
_DELETE_MESSAGE = _MESSAGE.delete().where(
    _MESSAGE.c.version == bindparam("version"), _MESSAGE.c.message_id == bindparam("message_id")
)
_DELETE_RUN = _RUN.delete().where(_RUN.c.version == bindparam("version"), _RUN.c.run_id == bindparam("run_id"))
_DELETE_STEPS = _STEP.delete().where(_STEP.c.version == bindparam("version"), _STEP.c.run_id == bindparam("run_id"))
_DELETE_ITEM = _QUEUE.delete().where(_QUEUE.c.queue_item_id == bindparam("queue_item_id"))
_INSERT_STEP = _STEP.insert().values(
    {column.name: bindparam(column.name) for column in _STEP.columns}
    | {
        "available_at": clock_ms(),
        "lease_expires_at": clock_ms() + sql_cast(bindparam("lease_ms"), BigInteger),
        "dispatch_at": clock_ms() + sql_cast(bindparam("dispatch_ms"), BigInteger),
        "deadline_at": clock_ms() + sql_cast(bindparam("deadline_ms"), BigInteger),
        "first_started_at": clock_ms() + sql_cast(bindparam("started_ms"), BigInteger),
    }
)
# Made once, because they are compiled once.
_INSERTS = {cls: table.insert() for cls, table in _TABLES.items()} | {Step: _INSERT_STEP, Flag: INSERT_FLAG}
_INSERT_RECEIPT = table_of(ReceiptTable).insert()
_QUEUED = select(_QUEUE).where(_QUEUE.c.version == bindparam("version")).order_by(_QUEUE.c.position)


_HEAD = frozenset({"status", "title", "meta", "category"})
_LISTED = _HEAD | {"listed_at", "parent_thread_id"}


@cache
def _update_statement(table: Table, names: tuple[str, ...], times: tuple[str, ...]) -> Update:
    where = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    values |= {name: clock_ms() + sql_cast(bindparam(f"after_{name}"), BigInteger) for name in times}
    return update(table).where(*where).values(values)


class StepLost(Exception):
    """The step is no longer held by this attempt: whatever it produced is dropped."""


class ThreadTransaction:
    """Reads rows when asked, remembers what is changed, and writes it in one go at `flush`.

    `owner`: the worker process that goes on with the steps which this transaction creates; None when they wait for one.
    """

    def __init__(
        self,
        runtime: "Runtime",
        connection: AsyncConnection,
        thread: Thread,
        *,
        created: bool = False,
        worker: str | None = None,
    ) -> None:
        self.runtime = runtime
        self.connection = connection
        self.thread = thread
        self.created = created
        self.worker = worker
        self.now = now_ms()
        self.revision = thread.revision + 1
        self.opening_reason: ResetReason | None = None
        self.claimed: list[Step] = []
        self.signals: list[tuple[str, int]] = []
        self.asked: Journal | None = None
        self._held: str | None = None
        self._suspended_for: dict[str, int | None] = {}
        self._dispatches: list[tuple[str, str]] = []
        self._entries: list[tuple[bytes, bytes]] = []
        self._finished: list[int] = []
        self._steps: dict[str, Step] | None = None
        self._queue: list[QueueItem] | None = None
        self._runs: dict[str, Run] = {}
        self._messages: dict[str, Message] = {}
        self._folds: dict[str, Fold] = {}
        self._folded: set[str] = set()
        self._files = FileUses()
        self._new: dict[type[Record], list[Record]] = {}
        self._changed: dict[int, tuple[Record, dict[str, Any]]] = {}
        self._removed_messages: list[str] = []
        self._hidden_messages: list[str] = []
        self._removed_runs: list[str] = []
        self._removed_items: list[str] = []
        self._shown_messages: set[str] = set()
        self._receipts: list[dict[str, Any]] = []

    @property
    def agent(self) -> "Agent":
        return self.runtime.registry.get(self.thread.agent)

    @property
    def version(self) -> str:
        return self.thread.version

    # What is there.

    def take(self, locked: Locked) -> None:
        """Rows that were read together with the lock."""
        self._steps = {step.step_id: step for step in locked.steps}
        self._runs |= {run.run_id: run for run in locked.runs}
        self.asked = locked.asked
        if locked.message is not None:
            self._messages.setdefault(locked.message.message_id, locked.message)

    async def run(self, run_id: str) -> Run | None:
        if run_id not in self._runs:
            [rows] = await fetch_all(self.connection, [(_RUN_BY_ID, {"run_id": run_id, "version": self.version})])
            if not rows:
                return None
            self._runs[run_id] = Run.of(rows[0])
        return self._runs[run_id]

    async def current_run(self) -> Run | None:
        return None if self.thread.current_run_id is None else await self.run(self.thread.current_run_id)

    async def message(self, message_id: str) -> Message | None:
        if message_id not in self._messages:
            parameters = {"version": self.version, "message_id": message_id}
            [rows] = await fetch_all(self.connection, [(MESSAGE_BY_ID, parameters)])
            if not rows:
                return None
            self._messages[message_id] = Message.of(rows[0])
        return self._messages[message_id]

    def know(self, message: Message) -> None:
        """Takes a row that nobody else can have changed since it was read."""
        # A copy, because the transaction may run again.
        self._messages.setdefault(message.message_id, message.model_copy())

    def known_run(self, run_id: str) -> Run:
        """A run that was read or created here."""
        return self._runs[run_id]

    def known_message(self, message_id: str | None) -> Message | None:
        """A message that was read or created here, as it is when everything is written."""
        return None if message_id is None else self._messages.get(message_id)

    def after(self, messages: Sequence[Message]) -> list[Message]:
        """Messages of the thread, in order, as this transaction left them, with those that it added."""
        before = {message.message_id for message in messages}
        added = [message for message in self._new.get(Message, ()) if isinstance(message, Message)]
        return [
            self._messages.get(message.message_id, message)
            for message in [*messages, *(one for one in added if one.message_id not in before)]
            if message.message_id not in self._removed_messages
        ]

    async def live_steps(self) -> list[Step]:
        """The pending, running and suspended steps of the thread, oldest first."""
        if self._steps is None:
            [rows] = await fetch_all(self.connection, [(STEPS_LIVE, {"version": self.version})])
            self._steps = {step.step_id: step for step in map(Step.of, rows)}
            self._steps |= {step.step_id: step for step in self._new.get(Step, ()) if isinstance(step, Step)}
        return [step for step in self._steps.values() if StepState(step.state).live]

    async def held_step(self, step_id: str, *, attempt: int) -> Step:
        """The running step of this attempt. Raises StepLost."""
        await self.live_steps()
        step = (self._steps or {}).get(step_id)
        if step is None or step.attempt != attempt or step.state != StepState.running:
            raise StepLost(step_id)
        self._held = step_id
        return step

    async def queue(self) -> list[QueueItem]:
        """The queued inputs in the order of arrival."""
        if self._queue is None:
            rows: list[dict[str, Any]] = []
            if self.thread.queued:
                [rows] = await fetch_all(self.connection, [(_QUEUED, {"version": self.version})])
            self._queue = [QueueItem.of(row) for row in rows]
        return self._queue

    # What changes.

    def insert(self, record: Record) -> None:
        self._new.setdefault(type(record), []).append(record)
        if isinstance(record, Run):
            self._runs[record.run_id] = record
        elif isinstance(record, Message):
            self._messages[record.message_id] = record
            self._shown_messages.add(record.message_id)
            self._files.gained(record.message_id, record.parts)
        elif isinstance(record, QueueItem):
            self._files.moved((), record.messages)
        elif isinstance(record, Step) and self._steps is not None:
            self._steps[record.step_id] = record

    def update(self, record: Record, **values: Any) -> None:
        """Sets columns of a row that was read or inserted in this transaction; a time may be `FromNow`."""
        if isinstance(record, QueueItem) and "messages" in values:
            self._files.moved(record.messages, values["messages"])
        for name, value in values.items():
            setattr(record, name, value)
        if any(record is new for new in self._new.get(type(record), ())):
            return
        self._changed.setdefault(id(record), (record, {}))[1].update(values)

    def position(self) -> int:
        """The next place in the thread, for a message, a run or a queue item."""
        position = self.thread.next_position
        self.update(self.thread, next_position=position + 1)
        return position

    def add_message(
        self, message_id: str, *, run_id: str | None, role: str, facts: dict[str, Any], **fields: Any
    ) -> Message:
        """Appends a message. `facts` go under `metadata.pai`, with both times added; `meta` is the application's."""
        meta = {
            **fields.pop("meta", {}),
            "pai": {**facts, "createdAt": iso(self.now), "updatedAt": iso(self.now)},
        }
        message = Message(
            version=self.version,
            message_id=message_id,
            position=self.position(),
            run_id=run_id,
            role=role,
            meta=meta,
            **fields,
        )
        self.insert(message)
        return message

    async def remove_message(self, message: Message) -> None:
        self._changed.pop(id(message), None)
        self._messages.pop(message.message_id, None)
        self._folds.pop(message.message_id, None)
        self._removed_messages.append(message.message_id)
        self._files.removed(message.message_id)

    def replace_message(self, message: Message, **values: Any) -> None:
        """Changes an input message; watchers get it whole, in its place."""
        self._messages[message.message_id] = message
        self._shown_messages.add(message.message_id)
        if "parts" in values:
            self._files.lost(message.message_id, message.parts)
            self._files.gained(message.message_id, values["parts"])
        self.update(message, **values)

    def set_visibility(self, message: Message, visibility: str) -> None:
        """Watchers see a message go when people may not see it any more, and come, at the end, when they may again."""
        if message.visibility in SHOWN and visibility not in SHOWN:
            self._hidden_messages.append(message.message_id)
        elif visibility in SHOWN and message.visibility not in SHOWN:
            self._shown_messages.add(message.message_id)
        self.update(message, visibility=visibility)

    async def remove_runs(self, run_ids: Sequence[str]) -> None:
        """Removes runs that are over, with their steps."""
        for run_id in run_ids:
            run = self._runs.pop(run_id, None)
            self._changed.pop(id(run), None)
        self._removed_runs += run_ids

    def add_step(self, kind: StepKind, *, run_id: str, queue: str, max_attempts: int = 1, **fields: Any) -> Step:
        """Creates a step. A worker that goes on in place gets it already claimed, unless it names another queue."""
        step = self._new_step(kind, run_id=run_id, queue=queue, max_attempts=max_attempts, **fields)
        if self.worker is not None and queue in self.runtime.worker_queues:
            step.state = StepState.running
            step.attempt = 1
            step.lease_owner = self.worker
            self.claimed.append(step)
        else:
            self._dispatches.append((step.step_id, queue))
        self.insert(step)
        return step

    def add_suspended_step(self, *, run_id: str, queue: str, ends_in_ms: int | None, **fields: Any) -> Step:
        """Creates the step of a call whose output comes from outside; the sweep ends it after `ends_in_ms`."""
        step = self._new_step(StepKind.tool, run_id=run_id, queue=queue, state=StepState.suspended, **fields)
        self._suspended_for[step.step_id] = ends_in_ms
        self.insert(step)
        return step

    def _new_step(self, kind: StepKind, **fields: Any) -> Step:
        number = self.thread.next_step
        self.update(self.thread, next_step=number + 1)
        return Step(
            step_id=new_id("step"), version=self.version, number=number, kind=kind, agent=self.thread.agent, **fields
        )

    def dispatch(self, step: Step) -> None:
        """Tells the workers about a step that is pending again."""
        self._dispatches.append((step.step_id, step.queue))

    def suspend(self, step: Step, *, timeout: timedelta | None) -> None:
        """Running to suspended, under a raised fence: the call waits, and the sweep ends it after `timeout`."""
        self.update(
            step,
            state=StepState.suspended,
            attempt=step.attempt + 1,
            lease_owner=None,
            lease_expires_at=None,
            deadline_at=None,
            dispatch_at=None if timeout is None else FromNow(round(timeout.total_seconds() * 1000)),
        )

    def put_to_work(self, step: Step) -> None:
        """Suspended to pending: the call is entered again, on some worker."""
        self.update(
            step,
            state=StepState.pending,
            available_at=FromNow(),
            dispatch_at=FromNow(FIRST_REDISPATCH_MS),
            dispatches=0,
        )
        self.dispatch(step)

    def end_step(self, step: Step, state: StepState, **fields: Any) -> None:
        """Settles a step; a worker that still runs it is fenced by the raised attempt and told to stop.

        A pending one may be claimed at this very moment, because claims do not wait for the thread.
        """
        if step.step_id != self._held and step.state in (StepState.running, StepState.pending):
            claimed = step.attempt + (step.state == StepState.pending)
            fields["attempt"] = claimed + 1
            self.signals.append((step.step_id, claimed + 1))
        self._finished.append(step.number)
        self.update(step, state=state, lease_owner=None, lease_expires_at=None, dispatch_at=None, **fields)

    def signal_stop(self, step: Step) -> None:
        """Tells whoever runs this attempt of a step to abandon it, unless it is the one that this transaction ends."""
        if step.step_id != self._held:
            self.signals.append((step.step_id, step.attempt + 1))

    def fold(self, message: Message) -> Fold:
        """The fold of a message's stored parts; chunks applied to it are this transaction's."""
        fold = self._folds.get(message.message_id)
        if fold is None:
            fold = self._folds[message.message_id] = Fold(
                records.message_record(message), cast(FoldingState | None, message.folding)
            )
        return fold

    def adopt(self, message: Message, fold: Fold, *, sequence: int) -> None:
        """Takes what a model step streamed and published (up to `sequence`) as the message's content."""
        # A copy, because the transaction may run again and the worker's own must not see its chunks twice.
        self._folds[message.message_id] = Fold(fold.message, fold.folding())
        self._folded.add(message.message_id)
        self.update(message, stored_sequence=sequence)

    def apply(self, message: Message, *chunks: dict[str, Any]) -> None:
        """Folds chunks into a message and publishes them with this transaction's revision."""
        fold = self.fold(message)
        self._folded.add(message.message_id)
        shown = message.visibility in SHOWN
        for chunk in chunks:
            fold.apply(chunk)
            if shown:
                self._entries.append(entries.chunk(message.run_id or "", message.message_id, dumps(chunk)))

    async def add_queue_item(self, item: QueueItem) -> None:
        (await self.queue()).append(item)
        self.insert(item)
        self.update(self.thread, queued=self.thread.queued + 1)

    async def take_queue_item(self, item: QueueItem) -> None:
        """Removes an item that was admitted, recalled or cancelled."""
        (await self.queue()).remove(item)
        self._files.moved(item.messages, ())
        new = self._new.get(QueueItem, [])
        if any(item is other for other in new):
            new[:] = [other for other in new if other is not item]
        else:
            self._changed.pop(id(item), None)
            self._removed_items.append(item.queue_item_id)
        self.update(self.thread, queued=self.thread.queued - 1)

    def record(self, request: Request, result: dict[str, Any]) -> None:
        """Writes the receipts of a request with the transaction."""
        self._receipts += [
            {
                "version": self.version,
                "kind": kind,
                "request_id": request_id,
                "request_hash": request_hash,
                "result": result,
                "created_at": self.now,
            }
            for kind, request_id, request_hash in request.receipts()
        ]

    # The end.

    async def flush(self) -> Publication:
        """Writes everything and returns what is to be published once the transaction is committed."""
        self._settle_folds()
        self.update(self.thread, revision=self.revision, updated_at=self.now)
        if self.created:
            self._changed.pop(id(self.thread), None)
        publication = self._publication()
        await self._files.settle(self.connection, self.thread, unused_ms=self.runtime.unused_file_ms)
        await self._write()
        return publication

    def _settle_folds(self) -> None:
        for message_id, fold in self._folds.items():
            message = self._messages[message_id]
            if message_id not in self._folded and id(message) not in self._changed:
                continue  # only looked at
            content = fold.message
            self.update(
                message,
                parts=content["parts"],
                meta=content.get("metadata", {}),
                folding=fold.folding() if message.open else None,
            )

    async def _write(self) -> None:
        """Everything travels together with COMMIT, where the database can do that."""
        writes: list[tuple[Executable, Any]] = []
        if self.created:
            # The row was inserted to take the lock; its columns are written with the rest.
            values = self.thread.__dict__.copy()
            del values["version"]
            writes.append(self._row_update(self.thread, values))
        writes += [(_DELETE_MESSAGE, {"version": self.version, "message_id": gone}) for gone in self._removed_messages]
        for cls in (Run, Message, Step, QueueItem, Journal, Flag):
            new = self._new.get(cls)
            if new:
                writes.append((_INSERTS[cls], [self._values(record) for record in new]))
        if self._receipts:
            writes.append((_INSERT_RECEIPT, self._receipts))
        for gone in self._removed_runs:
            parameters = {"version": self.version, "run_id": gone}
            writes += [(_DELETE_STEPS, parameters), (_DELETE_RUN, parameters)]
        writes += [(_DELETE_ITEM, {"queue_item_id": gone}) for gone in self._removed_items]
        writes += [self._row_update(record, values) for record, values in self._changed.values() if values]
        await execute_all(self.connection, writes)

    def _values(self, record: Record) -> dict[str, Any]:
        values = record.__dict__.copy()
        if isinstance(record, Step):
            claimed = record.state == StepState.running
            values["lease_ms"] = self.runtime.lease_ms if claimed else None
            values["started_ms"] = 0 if claimed else None
            values["deadline_ms"] = (
                record.timeout_ms + DEADLINE_GRACE_MS if claimed and record.timeout_ms is not None else None
            )
            values["dispatch_ms"] = FIRST_REDISPATCH_MS if record.state == StepState.pending else None
            if record.step_id in self._suspended_for:
                values["dispatch_ms"] = self._suspended_for[record.step_id]
        return values

    def _row_update(self, record: Record, values: dict[str, Any]) -> tuple[Executable, dict[str, Any]]:
        times = {name: value.milliseconds for name, value in values.items() if isinstance(value, FromNow)}
        plain = {name: value for name, value in values.items() if name not in times}
        keys = {f"key_{key}": getattr(record, key) for key in _KEYS[type(record)]}
        after = {f"after_{name}": milliseconds for name, milliseconds in times.items()}
        return _update_statement(_TABLES[type(record)], tuple(plain), tuple(times)), {**plain, **after, **keys}

    def _publication(self) -> Publication:
        events = [*self._entries, entries.update(dumps(self._changes()))]
        floor = 0
        if self._steps is not None:
            live = [step.number for step in self._steps.values() if StepState(step.state).live]
            floor = min(live, default=self.thread.next_step)
        return Publication(
            thread=self.thread,
            epoch=self.thread.log_epoch,
            revision=self.revision,
            entries=events,
            floor=floor,
            finished=self._finished,
            opening=self.created or self.opening_reason is not None,
            reason=self.opening_reason,
            streaming=self._streaming,
            head=not self.thread.hidden and (self.created or bool(self._thread_changes.keys() & _LISTED)),
            dispatches=self._dispatches,
            signals=self.signals,
            flags=[flag.flag_id for flag in self._new.get(Flag, ()) if isinstance(flag, Flag)],
        )

    @property
    def _streaming(self) -> bool:
        """Whether a model step that this transaction did not create may be publishing."""
        new = self._new.get(Step, ())
        return any(
            step.kind == StepKind.model and step.state == StepState.running and not any(step is one for one in new)
            for step in (self._steps or {}).values()
        )

    @property
    def _thread_changes(self) -> dict[str, Any]:
        return self._changed[id(self.thread)][1] if id(self.thread) in self._changed else {}

    @property
    def _head_changed(self) -> bool:
        return bool(self._thread_changes.keys() & _HEAD)

    def _changes(self) -> Changes:
        thread, changed = self.thread, self._thread_changes
        changes: Changes = {}
        if self.created or self._head_changed:
            changes["thread"] = records.thread_head(thread).wire()
        inserted = [self._messages[message_id] for message_id in self._shown_messages if message_id in self._messages]
        if shown := [message for message in inserted if message.visibility in SHOWN]:
            changes["messages"] = [
                records.message_record(message) for message in sorted(shown, key=lambda message: message.position)
            ]
        if gone := self._removed_messages + self._hidden_messages:
            changes["removedMessageIds"] = gone
        if self._removed_runs:
            changes["removedRunIds"] = self._removed_runs
        runs = [record for record, values in self._changed.values() if isinstance(record, Run) and values]
        runs += [record for record in self._new.get(Run, ()) if isinstance(record, Run)]
        if runs:
            changes["runs"] = [records.run_state(run, thread_id=thread.thread_id).wire() for run in runs]
        if self.created or changed.keys() & {"status", "current_run_id"}:
            changes["activeRunId"] = records.active_run_id(thread)
        if self.created or changed.keys() & {"status", "current_run_id", "queued", "actions"}:
            changes["capabilities"] = records.capabilities(thread).wire()
        merged = any(isinstance(record, QueueItem) and values for record, values in self._changed.values())
        if self._queue is not None and (
            merged or self._new.get(QueueItem) or self._removed_items or "queued" in changed
        ):
            changes["queue"] = records.queue_state(self._queue).wire()
        if "usage" in changed:
            changes["usage"] = thread.usage
        if "error" in changed:
            changes["error"] = thread.error
        return changes
