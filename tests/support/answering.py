"""Answering what runs wait for over HTTP, as a page does, and looking at what that left in the database."""

from datetime import timedelta
from typing import Any

import httpx
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel

from support.waiting import wait_until

YES = {"approved": True}


def pending_refs(state: dict[str, Any], *, outputs: bool = True) -> list[dict[str, Any]]:
    """The references of what a state shows as pending, in the order of the calls.

    `outputs`: calls that are not suspended wait for their output; in a run that still runs, a worker may have them.
    """
    refs = []
    for message in state["messages"]:
        suspended = {
            part["data"]["toolCallId"]: part
            for part in message["parts"]
            if part["type"] == "data-pai-suspension" and part["data"]["state"] == "pending"
        }
        for part in message["parts"]:
            if part.get("state") != "input-available" or not (outputs or part["toolCallId"] in suspended):
                continue
            run_id = message["metadata"]["pai"]["runId"]
            tool = part.get("toolName") or part["type"].removeprefix("tool-")
            suspension = suspended.get(part["toolCallId"])
            named = {} if suspension is None else {"suspendName": suspension["data"]["name"]}
            refs.append(
                {
                    "kind": "tool",
                    "threadId": state["thread"]["threadId"],
                    "toolName": tool,
                    **named,
                    "messageId": message["id"],
                    "toolCallId": part["toolCallId"],
                    "runId": run_id,
                    "actionId": part["toolCallId"] if suspension is None else suspension["id"],
                    "name": f"{tool}.{named.get('suspendName', 'output')}",
                }
            )
    return refs


async def respond(
    http: httpx.AsyncClient, url: str, ref: dict[str, Any], response: dict[str, Any], **more: Any
) -> httpx.Response:
    """`more` are keys of the request, `thread` another one in the path, and `headers`."""
    headers, thread = more.pop("headers", {}), more.pop("thread", ref.get("threadId", "t"))
    body = {"ref": ref, "response": response, **more}
    return await http.post(f"{url}/threads/{thread}/actions", json=body, headers=headers)


async def submit(
    http: httpx.AsyncClient, url: str, ref: dict[str, Any], payload: Any = None, **more: Any
) -> httpx.Response:
    """Submits `payload`, or a yes."""
    return await respond(http, url, ref, {"type": "submit", "payload": payload or YES}, **more)


async def waiting(
    http: httpx.AsyncClient, url: str, thread_id: str, *, count: int = 1, saw: Any = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The state of a thread once it waits for `count` answers, and their references."""

    async def waits() -> Any:
        state = (await http.get(f"{url}/threads/{thread_id}")).json()
        if state.get("thread", {}).get("status") != "waiting":
            return None
        refs = pending_refs(state)
        return (state, refs) if len(refs) == count else None

    every = timedelta(milliseconds=30)
    found: tuple[dict[str, Any], list[dict[str, Any]]] = await wait_until(waits, every=every, saw=saw)
    return found


def rows(database_url: str) -> dict[str, list[tuple[str, ...]]]:
    """Every row of every table, as text, in an order of its own."""
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.connect() as connection:
        return {
            table.name: sorted(
                tuple(map(str, row)) for row in connection.execute(text(f'SELECT * FROM "{table.name}"'))
            )
            for table in SQLModel.metadata.sorted_tables
        }


def records(database_url: str, table: str) -> list[dict[str, Any]]:
    """The rows of one table, by column."""
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(f'SELECT * FROM "{table}"')).mappings()]
