"""What must be true of every thread, whatever happened to it."""

from dataclasses import replace
from typing import Any

from engine_parts import Engine
from sqlalchemy import select

from pai.engine.snapshot import read_state
from pai.fold import Fold
from pai.log.batches import LogState
from pai.log.entries import Entry, EntryKind
from pai.log.sequences import sequence_of
from pai.protocol.json import loads
from pai.protocol.messages import validate_messages
from pai.protocol.tool_parts import is_settled
from pai.store.tables import (
    LIVE_STEPS,
    File,
    FileTable,
    FileUse,
    FileUseTable,
    Journal,
    JournalTable,
    Message,
    MessageTable,
    QueueItem,
    QueueItemTable,
    Run,
    RunTable,
    Step,
    StepTable,
    Thread,
    ThreadTable,
    table_of,
)

LIVE_RUNS = ("running", "waiting")
RUN_HOOKS = ("on_run_start", "on_run_finish")


class Rows:
    def __init__(self, thread: Thread, runs: list[Run], messages: list[Message], steps: list[Step]) -> None:
        self.thread = thread
        self.runs = runs
        self.messages = messages
        self.steps = [step for step in steps if step.state in LIVE_STEPS]
        self.items: list[QueueItem] = []
        self.following: set[str] = set()
        """Steps that wait for another thread."""


async def check_rules(engine: Engine) -> None:
    """Raises AssertionError for the first rule that does not hold. Nothing may be going on meanwhile."""
    for rows in await check_rows(engine):
        await _snapshot_is_the_fold(engine, rows.thread)
    await _keys_expire(engine)


async def check_rows(engine: Engine) -> list[Rows]:
    """The rules of what SQL holds, which are true after every transaction. -> the threads."""
    async with engine.runtime.store.read() as connection:

        async def read(cls: Any, table: Any, **where: Any) -> list[Any]:
            query = select(table_of(table)).filter_by(**where)
            return [cls.of(row) for row in (await connection.execute(query)).mappings()]

        aggregates = []
        for thread in await read(Thread, ThreadTable):
            version = {"version": thread.version}
            rows = Rows(
                thread,
                await read(Run, RunTable, **version),
                await read(Message, MessageTable, **version),
                await read(Step, StepTable, **version),
            )
            rows.items = await read(QueueItem, QueueItemTable, **version)
            waits = await read(Journal, JournalTable, **version, kind="follow", state="pending")
            rows.following = {row.step_id for row in waits}
            aggregates.append(rows)
        uses = await read(FileUse, FileUseTable)
        ready = {file.file_id for file in await read(File, FileTable, state="ready")}
    _uses_are_those_of_messages(aggregates, uses, ready)
    for rows in aggregates:
        _thread_is_consistent(rows)
        _steps_are_consistent(rows)
        _messages_are_valid(rows)
    return aggregates


def _uses_are_those_of_messages(aggregates: list[Rows], uses: list[FileUse], ready: set[str]) -> None:
    """Each attachment is a use of its file, which nobody cleans meanwhile; a model's file is used from the start."""
    attached, made = set(), set()
    for rows in aggregates:
        version = rows.thread.version
        made |= {(version, message.message_id) for message in rows.messages if message.role == "assistant"}
        messages = [(message.message_id, message.parts) for message in rows.messages]
        messages += [(message["id"], message["parts"]) for item in rows.items for message in item.messages]
        attached |= {
            (version, message_id, part["data"]["fileId"])
            for message_id, parts in messages
            for part in parts
            if part["type"] == "data-pai-attachment"
        }
    found = {(use.version, use.message_id, use.file_id) for use in uses}
    assert {use for use in found if use[:2] not in made} == attached
    assert {use.file_id for use in uses} <= ready


def _thread_is_consistent(rows: Rows) -> None:
    thread = rows.thread
    current = [run for run in rows.runs if run.status in LIVE_RUNS]
    assert [run.run_id for run in current] == ([thread.current_run_id] if thread.current_run_id else [])
    assert thread.status == (current[0].status if current else "idle")
    assert thread.queued == len(rows.items)
    assert {run.run_id for run in rows.runs if run.status == "queued"} == {item.run_id for item in rows.items}
    assert not (thread.status == "idle" and rows.items), "input waits in an idle thread"
    followed = any(step.step_id in rows.following for step in rows.steps)
    assert bool(thread.actions) or followed or thread.status != "waiting", "it waits for nothing"


def _steps_are_consistent(rows: Rows) -> None:
    live_runs = {run.run_id for run in rows.runs if run.status in LIVE_RUNS}
    for step in rows.steps:
        if step.kind == "hook" and step.name not in RUN_HOOKS:
            continue
        assert step.run_id in live_runs, f"a live step in a finished run: {step}"
    for step in rows.steps:
        leased = step.lease_owner is not None and step.lease_expires_at is not None
        assert leased == (step.state == "running"), f"a lease that is none: {step}"
        assert step.state != "pending" or step.dispatch_at is not None, f"nobody will ever dispatch it: {step}"
    if rows.thread.status == "running":
        assert any(step.state in ("pending", "running") for step in rows.steps), "it runs without a step"
    suspended = {
        step.tool_call_id for step in rows.steps if step.state == "suspended" and step.step_id not in rows.following
    }
    assert {ref["toolCallId"] for ref in rows.thread.actions} == suspended


def _messages_are_valid(rows: Rows) -> None:
    with_step = {step.message_id for step in rows.steps}
    positions = [message.position for message in rows.messages]
    assert len(set(positions)) == len(positions)
    for message in sorted(rows.messages, key=lambda message: message.position):
        record = {"id": message.message_id, "role": message.role, "metadata": message.meta, "parts": message.parts}
        validate_messages([record])
        if message.open:
            assert message.message_id in with_step, f"an open message that nobody goes on with: {message}"
            continue
        assert message.folding is None
        assert message.meta["pai"]["status"] == "committed"
        for part in message.parts:
            if "toolCallId" in part and not part.get("providerExecuted"):
                assert is_settled(part), f"a call without a result: {part}"
            assert part.get("state") != "streaming", f"a part that never ended: {part}"
            if part["type"] == "data-pai-suspension":
                assert part["data"]["state"] != "pending"


async def _keys_expire(engine: Engine) -> None:
    redis = engine.runtime.log.redis
    async for key in redis.scan_iter("*"):
        assert await redis.ttl(key) > 0, f"{key!r} stays for ever"


async def _snapshot_is_the_fold(engine: Engine, thread: Thread) -> None:
    """Where the log is whole, from the thread's creation on, folding all of it gives the snapshot."""
    caller = engine.caller(thread.owner.partition("/")[2], agent=thread.agent)
    if thread.hidden:
        caller = replace(caller, identity=replace(caller.identity, trusted=True))
    state = await read_state(engine.runtime, caller, thread.thread_id)
    assert state is not None
    log = await engine.runtime.log.read_after(thread.version, sequence=0)
    whole = log.state is LogState.LIVE and log.epoch == 1 == thread.log_epoch and log.revision == state.revision
    entries = [entry for entry in log.entries if entry.sequence <= state.sequence]
    if log.entries:
        sequences = [entry.sequence for entry in log.entries]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences))), "a gap"
    whole = whole and log.oldest == sequence_of(1, 1)
    if not whole or any(entry.kind is EntryKind.RESET for entry in entries):
        return
    assert state.sequence == sequence_of(log.epoch, log.n)
    assert folded(entries) == comparable(state.wire())


def folded(entries: list[Entry]) -> dict[str, Any]:
    """What a watcher from the beginning shows after these events."""
    state: dict[str, Any] = {"queue": {"items": [], "canRecall": False}, "usage": None, "error": None}
    messages: dict[str, Fold] = {}
    users: dict[str, dict[str, Any]] = {}
    runs: dict[str, Any] = {}
    order: list[str] = []
    for entry in entries:
        if entry.kind is EntryKind.CHUNK:
            messages[entry.message_id].apply(loads(entry.body))
            continue
        assert entry.kind is EntryKind.UPDATE, entry
        changes = loads(entry.body)
        for record in changes.pop("messages", ()):
            if record["id"] not in order:
                order.append(record["id"])
            if record["role"] == "assistant":
                messages[record["id"]] = Fold(record, record.get("folding"))
            else:
                users[record["id"]] = record
        order = [message_id for message_id in order if message_id not in changes.get("removedMessageIds", ())]
        changes.pop("removedMessageIds", None)
        runs |= {run["runId"]: run for run in changes.pop("runs", ())}
        runs = {name: run for name, run in runs.items() if name not in changes.get("removedRunIds", ())}
        changes.pop("removedRunIds", None)
        state |= changes
    shown = [users.get(message_id) or messages[message_id].message for message_id in order]
    return comparable({**state, "messages": shown, "runs": list(runs.values())})


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """What an update may leave out when it never changed is as good as empty."""
    usage = {"inputTokenDetails": {}, "outputTokenDetails": {}, **(state["usage"] or {})}
    runs = {run["runId"]: run for run in state["runs"]}
    kept = {key: state[key] for key in ("thread", "messages", "activeRunId", "queue", "capabilities", "error")}
    return {**kept, "usage": usage, "runs": runs}
