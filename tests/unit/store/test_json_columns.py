"""JSON goes in and comes out as the text that was written."""

from typing import Any

import pytest
from rows import MESSAGE, RUN, THREAD, message, run, thread
from sqlalchemy import Text, cast, insert, select, text, type_coerce, update

from pai.protocol.json import dumps_text
from pai.store.store import Store, execute_all
from pai.store.types import Json

DOCUMENTS = [
    {"b": 1, "a": {"z": None, "y": []}},
    {"same": 1, "float": 1.0, "big": 2**53 + 1, "tiny": 1e-300},
    {"text": 'é 漢字 🧑‍🚀 \u2028 \u0001 " \\ /'},
    {"": "", "1": {"2": [[], {}, [None]]}},
    "text",
    1,
    1.5,
    True,
    False,
    0,
    "",
    "null",
    "1",
    [],
    [None, 1, "x"],
]


async def stored(store: Store, value: Any) -> tuple[Any, str | None]:
    """What a column gives back for a value, and the text that is in the database."""
    async with store.write() as connection:
        await connection.execute(insert(THREAD), thread("v"))
        await connection.execute(insert(RUN), run("v", client_data=value))
    async with store.read() as connection:
        column = RUN.c.client_data
        row = (await connection.execute(select(column, cast(type_coerce(column, Text), Text)))).one()
        return row[0], row[1]


@pytest.mark.parametrize("value", DOCUMENTS, ids=repr)
async def test_a_document_keeps_its_value_type_and_text(store: Store, value: Any) -> None:
    given, kept = await stored(store, value)
    assert given == value
    assert type(given) is type(value)
    assert kept == dumps_text(value)


async def test_keys_keep_their_order(store: Store) -> None:
    value = {f"k{n}": n for n in (5, 3, 9, 1)}
    given, _ = await stored(store, value)
    assert list(given) == ["k5", "k3", "k9", "k1"]


async def test_none_is_null_in_sql(store: Store) -> None:
    given, kept = await stored(store, None)
    assert (given, kept) == (None, None)
    async with store.read() as connection:
        assert (await connection.execute(select(RUN.c.run_id).where(RUN.c.client_data.is_(None)))).scalar() == "r"


async def test_a_document_of_five_megabytes_comes_back(store: Store) -> None:
    value = {"text": "0123456789abcdef" * 327_680, "after": 1}
    given, kept = await stored(store, value)
    assert given == value
    assert kept == dumps_text(value)


async def test_json_may_be_updated_in_many_rows_at_once(store: Store) -> None:
    async with store.write() as connection:
        await connection.execute(insert(THREAD), thread("v"))
        parts = [{"type": "text", "text": "1"}]
        await connection.execute(insert(MESSAGE), [message("v", n, parts=parts) for n in range(3)])
        await connection.execute(update(MESSAGE).values(parts=[{"a": 1}], folding={"open": 1}))
        rows = await connection.execute(select(MESSAGE.c.parts, MESSAGE.c.folding))
        assert rows.all() == [([{"a": 1}], {"open": 1})] * 3


async def test_json_is_parsed_in_rows_that_a_statement_returns(store: Store) -> None:
    async with store.write() as connection:
        returned = await connection.execute(
            insert(THREAD).returning(THREAD.c.title), thread("v", title={"b": 1, "a": 2})
        )
        assert list(returned.scalar_one()) == ["b", "a"]
        many = [thread(f"v{n}", title={"n": n}) for n in range(3)]
        returned = await connection.execute(insert(THREAD).returning(THREAD.c.title), many)
        assert sorted(title["n"] for title in returned.scalars()) == [0, 1, 2]


async def test_json_travels_with_writes_that_are_put_off(store: Store) -> None:
    async with store.write() as connection:
        await execute_all(connection, [(insert(THREAD), thread("v", title={"b": "🧑‍🚀", "a": 1}))])
    async with store.read() as connection:
        assert (await connection.execute(select(THREAD.c.title))).scalar_one() == {"b": "🧑‍🚀", "a": 1}


async def test_a_raw_query_gives_the_text(store: Store) -> None:
    async with store.write() as connection:
        await connection.execute(insert(THREAD), thread("v", title={"b": 1, "a": 2}))
        assert (await connection.execute(text("SELECT title FROM thread"))).scalar() == '{"b":1,"a":2}'
        parsed = text("SELECT title FROM thread").columns(title=Json)
        assert (await connection.execute(parsed)).scalar() == {"b": 1, "a": 2}
