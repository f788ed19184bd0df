"""Rows for store tests: the least that the tables take."""

from typing import Any

from pai.store.tables import Message, MessageTable, Run, RunTable, Step, StepTable, Thread, ThreadTable, table_of

THREAD, RUN, MESSAGE, STEP = (table_of(cls) for cls in (ThreadTable, RunTable, MessageTable, StepTable))


def thread(version: str, **fields: Any) -> dict[str, Any]:
    return Thread(version=version, owner="o", agent="a", thread_id=version, **fields).model_dump()


def message(version: str, position: int = 0, **fields: Any) -> dict[str, Any]:
    return Message(version=version, message_id=f"m{position}", position=position, role="user", **fields).model_dump()


def run(version: str, run_id: str = "r", **fields: Any) -> dict[str, Any]:
    return Run(version=version, run_id=run_id, initiator="send", status="running", **fields).model_dump()


def step(version: str, step_id: str, **fields: Any) -> dict[str, Any]:
    return Step(version=version, step_id=step_id, kind="model", agent="a", run_id="r", **fields).model_dump()
