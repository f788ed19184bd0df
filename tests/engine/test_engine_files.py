"""Files: what a message uses stays, what nothing uses goes, and who owns neither sees neither."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from engine_parts import Engine, said, text_of
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from pai.engine import api
from pai.engine.file_cleanup import _ANY_DUE, BATCH, clean_files
from pai.engine.files import _STORED
from pai.engine.runtime import Caller
from pai.engine.uploads import store_generated
from pai.files.provider import FilesUnavailable
from pai.protocol.errors import (
    IdempotencyConflict,
    NotFound,
    PaiError,
    RateLimited,
    RegenerateInvalid,
    TooLarge,
    ValidationFailed,
)
from pai.protocol.files import CreateFileUrlInput, FileUploadInput, ReadFileInput, UploadedFile
from pai.protocol.identity import Identity
from pai.protocol.requests import RegenerateRequest
from pai.settings import Settings
from pai.store.tables import File
from support.file_stores import FileStore

PNG = b"\x89PNG pixels"


@pytest.fixture
def engine_settings(engine_settings: Settings, local_store: FileStore) -> Settings:
    return engine_settings.model_copy(update={**local_store.settings, "max_file_bytes": 10_000})


async def upload(engine: Engine, body: Any = PNG, *, caller: Caller | None = None, **more: Any) -> UploadedFile:
    key = more.pop("key", None)
    asked = FileUploadInput(body=body, media_type=more.pop("media_type", "image/png"), **more)
    return (await api.upload_file(engine.runtime, caller or engine.caller(), asked, key=key)).result


def attached(*files: UploadedFile | str, words: str = "look") -> dict[str, Any]:
    ids = [file if isinstance(file, str) else file.file_id for file in files]
    return {
        "message": {
            "parts": [{"type": "text", "text": words}, *({"type": "attachment", "fileId": file_id} for file_id in ids)]
        }
    }


async def send(engine: Engine, *files: UploadedFile | str, thread: str = "t", agent: str = "main", **more: Any) -> Any:
    request = said("").model_validate({**attached(*files), **more})
    return await api.send(engine.runtime, engine.caller(agent=agent), thread, request)


async def rows(engine: Engine, query: str = "SELECT * FROM file ORDER BY file_id") -> list[dict[str, Any]]:
    async with engine.runtime.store.read() as connection:
        return [dict(row) for row in (await connection.execute(text(query))).mappings()]


async def grow_old(engine: Engine) -> None:
    """Whatever waits for its time to be cleaned has waited for it, and every worker cleans."""
    await engine.execute("UPDATE file SET due_at = 1 WHERE due_at IS NOT NULL")
    await clean(engine)


async def clean(engine: Engine) -> None:
    await asyncio.gather(*(clean_files(worker.runtime) for worker in engine.workers))
    while await clean_files(engine.runtime):
        pass


async def test_an_attachment_is_in_the_message_and_in_what_the_model_is_given(engine: Engine) -> None:
    file = await upload(engine, filename="ü.png", metadata={"page": 1})
    await send(engine, file)
    state = await engine.idle()
    part = state["messages"][0]["parts"][1]
    assert part["type"] == "data-pai-attachment"
    assert part["data"] == {**file.wire(), "fileId": file.file_id}
    request = engine.model.requests[-1]
    assert request.messages[0]["parts"][1] == part
    assert request.load_file is not None
    assert await request.load_file(file.file_id) == (PNG, "image/png")


async def test_what_is_not_the_callers_own_ready_file_cannot_be_attached(engine: Engine) -> None:
    stuck, hold = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        stuck.set()
        await hold.wait()

    uploading = asyncio.create_task(upload(engine, body()))
    await stuck.wait()
    [half] = await rows(engine)
    bens = await upload(engine, caller=engine.caller("ben"))
    other_agents = await upload(engine, caller=engine.caller(agent="hooked"))
    for file_id in ("file_none", half["file_id"], bens.file_id, other_agents.file_id):
        with pytest.raises(NotFound) as caught:
            await send(engine, file_id)
        assert caught.value.what == "file"
    assert await rows(engine, "SELECT * FROM thread") == []
    assert await rows(engine, "SELECT * FROM file_use") == []
    hold.set()
    await send(engine, await uploading)
    await engine.idle()


async def test_another_identitys_file_does_not_exist(engine: Engine) -> None:
    file = await upload(engine)
    for caller in (engine.caller("ben"), engine.caller(agent="hooked")):
        with pytest.raises(NotFound):
            await api.read_file(engine.runtime, caller, ReadFileInput(file_id=file.file_id))
        assert await api.create_file_url(engine.runtime, caller, CreateFileUrlInput(file_id=file.file_id)) is None


async def test_a_file_that_nothing_uses_goes_when_it_is_old(engine: Engine, local_store: FileStore) -> None:
    used, unused = await upload(engine), await upload(engine)
    await send(engine, used)
    await engine.idle()
    await clean(engine)
    assert local_store.contents() == {used.file_id, unused.file_id}, "not before its time"
    await grow_old(engine)
    assert local_store.contents() == {used.file_id}
    assert [row["file_id"] for row in await rows(engine)] == [used.file_id]
    with pytest.raises(NotFound):
        await send(engine, unused)


async def test_the_files_of_a_deleted_thread_go_at_once(engine: Engine, local_store: FileStore) -> None:
    used, kept = await upload(engine), await upload(engine)
    await send(engine, used, kept, used)
    await send(engine, kept, thread="other")
    await engine.idle()
    await engine.idle("other")
    for_thread = await upload(engine, thread_id="t")
    for_later = await upload(engine, thread_id="later")
    await api.delete(engine.runtime, engine.caller(), "t")
    await clean(engine)
    assert local_store.contents() == {kept.file_id, for_later.file_id}
    assert {row["file_id"] for row in await rows(engine)} == local_store.contents()
    assert for_thread.file_id not in local_store.contents()
    await api.delete(engine.runtime, engine.caller(), "other")
    await clean(engine)
    assert local_store.contents() == {for_later.file_id}


async def test_input_that_was_taken_back_can_be_sent_again_for_a_while(engine: Engine, local_store: FileStore) -> None:
    gate = asyncio.Event()
    engine.turns.append(_held(gate))
    await engine.send("work")
    file = await upload(engine)
    queued = (await send(engine, file, queue={"mode": "queue"})).result
    await api.recall(engine.runtime, engine.caller(), "t", queued.queue_item_id)
    assert await rows(engine, "SELECT * FROM file_use") == []
    await clean(engine)
    await send(engine, file, queue={"mode": "queue"})
    [item] = (await engine.stop()).result.cancelled
    assert item.messages[0]["parts"][1]["data"]["fileId"] == file.file_id
    await send(engine, item.messages[0]["parts"][1]["data"]["fileId"])
    await engine.idle()
    await grow_old(engine)
    assert local_store.contents() == {file.file_id}
    await api.delete(engine.runtime, engine.caller(), "t")
    await clean(engine)
    assert local_store.contents() == set()


async def test_queued_input_keeps_its_files_on_the_way_into_the_transcript(
    engine: Engine, local_store: FileStore
) -> None:
    gate = asyncio.Event()
    engine.turns.append(_held(gate))
    await engine.send("work")
    one, two = await upload(engine), await upload(engine)
    await send(engine, one, queue={"mode": "queue"}, messageId="m1")
    await send(engine, two, queue={"mode": "queue", "merge": "last"}, messageId="m2")
    await grow_old(engine)
    gate.set()
    await engine.idle()
    await grow_old(engine)
    assert local_store.contents() == {one.file_id, two.file_id}
    uses = await rows(engine, "SELECT message_id, file_id FROM file_use ORDER BY message_id")
    assert [tuple(use.values()) for use in uses] == [("m1", one.file_id), ("m2", two.file_id)]


async def test_regenerating_keeps_attachments_unless_they_are_replaced(engine: Engine, local_store: FileStore) -> None:
    first, later, new = await upload(engine), await upload(engine), await upload(engine)
    await send(engine, first, messageId="m1")
    await engine.idle()
    await send(engine, later, messageId="m2")
    await engine.idle()

    async def again(**request: Any) -> dict[str, Any]:
        read = RegenerateRequest.read({"messageId": "m1", **request})
        await api.regenerate(engine.runtime, engine.caller(), "t", read)
        return await engine.idle()

    state = await again(replacement={"parts": [{"type": "text", "text": "instead"}]})
    assert text_of(state["messages"][0]) == "instead"
    assert [part["data"]["fileId"] for part in state["messages"][0]["parts"][1:]] == [first.file_id]
    await engine.execute("UPDATE file SET due_at = 1 WHERE file_id = :file_id", file_id=later.file_id)
    await clean(engine)
    assert local_store.contents() == {first.file_id, new.file_id}, "the message that used it went"
    before = await engine.state()
    with pytest.raises(NotFound):
        await again(replacement=attached(later)["message"])
    assert await engine.state() == before
    state = await again(replacement=attached(new)["message"])
    assert [part["data"]["fileId"] for part in state["messages"][0]["parts"][1:]] == [new.file_id]
    await grow_old(engine)
    assert local_store.contents() == {new.file_id}
    with pytest.raises(RegenerateInvalid):
        await again(messageId=state["messages"][1]["id"])


async def stored(engine: Engine, message_id: str, *, version: str) -> File:
    """What a model made, whether its message says so in the end or not."""
    ann = {"owner": engine.caller().owner, "agent": "main"}
    return await store_generated(
        engine.runtime, **ann, version=version, message_id=message_id, data=PNG, media_type="image/png"
    )


async def test_a_file_that_a_model_made_in_vain_goes_with_its_message(engine: Engine, local_store: FileStore) -> None:
    await engine.run(messageId="m1")
    version, answer = (await engine.thread()).version, (await engine.state())["messages"][1]["id"]
    made = await stored(engine, answer, version=version)
    await grow_old(engine)
    assert local_store.contents() == {made.file_id}
    await api.regenerate(engine.runtime, engine.caller(), "t", RegenerateRequest.read({"messageId": "m1"}))
    await engine.idle()
    assert await rows(engine, "SELECT * FROM file_use") == []
    await grow_old(engine)
    assert local_store.contents() == set()
    with pytest.raises(NotFound):  # a worker that does not know yet that its message went
        await stored(engine, answer, version=version)
    assert await rows(engine) == []
    assert local_store.contents() == set()


async def test_a_message_that_was_sent_is_answered_again_when_its_file_is_gone(
    engine: Engine, local_store: FileStore
) -> None:
    file = await upload(engine)
    first = await send(engine, file, messageId="m1")
    await engine.idle()
    request = {"messageId": "m1", "replacement": {"parts": [{"type": "file", "url": "data:,x", "mediaType": "text/x"}]}}
    await api.regenerate(engine.runtime, engine.caller(), "t", RegenerateRequest.read(request))
    await engine.idle()
    await grow_old(engine)
    assert local_store.contents() == set()
    second = await send(engine, file, messageId="m1")
    assert second.replayed
    assert second.result == first.result


async def test_an_upload_of_a_dead_process_is_cleaned(engine: Engine, local_store: FileStore) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield bytes(9000)
        started.set()
        await ended.wait()
        yield b"the rest"

    uploading = asyncio.create_task(upload(engine, body()))
    await started.wait()
    [row] = await rows(engine)
    assert row["state"] == "uploading"
    await clean(engine)
    assert await rows(engine) == [row], "not before its time"
    await grow_old(engine)
    assert await rows(engine) == []
    assert local_store.contents() == set()
    ended.set()  # it was only frozen, and comes too late
    with pytest.raises(PaiError):
        await uploading
    assert await rows(engine) == []
    assert local_store.contents() == set()


async def test_the_row_stays_until_the_bytes_are_gone(
    engine: Engine, local_store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await upload(engine)
    broken = engine.runtime.files.delete

    async def unavailable(key: str) -> None:
        raise FilesUnavailable

    async def dies_before(key: str) -> None:
        raise asyncio.CancelledError

    async def dies_after(key: str) -> None:
        await broken(key)
        raise asyncio.CancelledError

    for fault in (unavailable, dies_before, dies_after):
        monkeypatch.setattr(engine.runtime.files, "delete", fault)
        await engine.execute("UPDATE file SET due_at = 1")
        await asyncio.gather(clean_files(engine.runtime), return_exceptions=True)
        [row] = await rows(engine)
        assert row["state"] == "deleting"
        assert row["due_at"] > 1, "another worker tries again"
        with pytest.raises(NotFound):
            await api.read_file(engine.runtime, engine.caller(), ReadFileInput(file_id=file.file_id))
    monkeypatch.undo()
    await grow_old(engine)
    assert await rows(engine) == []
    assert local_store.contents() == set()


async def test_one_round_leaves_the_rest_to_the_next(engine: Engine, local_store: FileStore) -> None:
    for _ in range(BATCH + 1):
        await upload(engine)
    await engine.execute("UPDATE file SET due_at = 1")
    assert await clean_files(engine.runtime) == BATCH
    assert len(local_store.contents()) == 1
    assert await clean_files(engine.runtime) == 1
    assert await clean_files(engine.runtime) == 0


async def test_a_file_is_attached_or_cleaned_and_never_both(engine: Engine, local_store: FileStore) -> None:
    files = [await upload(engine) for _ in range(30)]
    await engine.execute("UPDATE file SET due_at = 1")
    chance = random.Random(7)

    async def late(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(chance.random() * 0.02)
        return await work()

    def sends(number: int, file: UploadedFile) -> Callable[[], Any]:
        return lambda: send(engine, file, thread=f"t{number}")

    jobs = [late(sends(number, file)) for number, file in enumerate(files)]
    jobs += [late(lambda worker=worker: clean_files(worker.runtime)) for worker in engine.workers * 10]
    done = await asyncio.gather(*jobs, return_exceptions=True)
    sent = {file.file_id for file, answer in zip(files, done, strict=False) if not isinstance(answer, BaseException)}
    assert all(isinstance(answer, NotFound) for answer in done if isinstance(answer, BaseException)), done
    await clean(engine)
    assert local_store.contents() == sent
    assert {row["file_id"] for row in await rows(engine)} == sent
    assert all(row["due_at"] is None for row in await rows(engine))
    for number, file in enumerate(files):
        if file.file_id in sent:
            await engine.idle(f"t{number}")


async def test_threads_that_share_files_and_go_together_leave_nothing(engine: Engine, local_store: FileStore) -> None:
    for _ in range(5):
        files = [await upload(engine) for _ in range(3)]
        for name in ("a", "b", "c"):
            await send(engine, *random.sample(files, 3), thread=name)
        for name in ("a", "b", "c"):
            await engine.idle(name)
        gone = [api.delete(runtime, engine.caller(), name) for runtime, name in zip(engine.runtimes, "ab", strict=True)]
        await asyncio.gather(*gone, *(clean_files(worker.runtime) for worker in engine.workers))
        await clean(engine)
        assert local_store.contents() == {file.file_id for file in files}, "the last thread still uses them"
        await api.delete(engine.runtime, engine.caller(), "c")
        await clean(engine)
        assert local_store.contents() == set()
        assert await rows(engine) == []
        assert await rows(engine, "SELECT * FROM file_use") == []


async def test_what_is_uploaded_is_bounded(engine: Engine, local_store: FileStore) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)

    async def some(size: int) -> AsyncIterator[bytes]:
        yield bytes(size)

    for wrong, error in (
        (upload(engine, bytes(10_001)), TooLarge),
        (upload(engine, endless()), TooLarge),
        (upload(engine, endless(), byte_size=10_001), TooLarge),
        (upload(engine, endless(), byte_size=10), ValidationFailed),
        (upload(engine, some(9), byte_size=10), ValidationFailed),
        (upload(engine, some(11), byte_size=10), ValidationFailed),
        (upload(engine, b"ab", byte_size=1), ValidationFailed),
        (upload(engine, byte_size=-1), ValidationFailed),
        (upload(engine, thread_id="a/b"), ValidationFailed),
        (upload(engine, metadata={"x": "y" * 9000}), ValidationFailed),
        (upload(engine, metadata={"x": float("nan")}), ValidationFailed),
        (upload(engine, filename="../../etc/passwd"), ValidationFailed),
        (upload(engine, media_type="image"), ValidationFailed),
    ):
        with pytest.raises(error):
            await wrong
    assert await rows(engine) == []
    assert local_store.contents() == set()
    assert (await upload(engine, bytes(10_000))).byte_size == 10_000
    assert (await upload(engine, b"")).byte_size == 0


async def test_uploads_without_a_size_count_while_they_come(engine: Engine, local_store: FileStore) -> None:
    limit, piece = 300_000, 50_000
    engine.runtime.settings = engine.runtime.settings.model_copy(
        update={"max_stored_bytes": limit, "max_file_bytes": 100 * limit}
    )
    came = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal came
        while True:
            came += piece
            yield bytes(piece)

    with pytest.raises(RateLimited):
        await upload(engine, endless())
    assert came <= 2 * (limit + piece)
    assert await rows(engine) == []
    assert local_store.contents() == set()


@pytest.mark.parametrize("again", [False, True])
async def test_an_upload_that_takes_too_long_is_refused(engine: Engine, local_store: FileStore, again: bool) -> None:
    if again:
        await upload(engine, key="k")
    before = await rows(engine)
    engine.runtime.settings = engine.runtime.settings.model_copy(update={"upload_timeout": timedelta(milliseconds=50)})

    async def stuck() -> AsyncIterator[bytes]:
        yield PNG
        await asyncio.Event().wait()

    with pytest.raises(ValidationFailed):
        await upload(engine, stuck(), key="k")
    assert await rows(engine) == before
    assert len(local_store.contents()) == len(before)


async def test_only_accepted_types_are_kept(engine: Engine) -> None:
    strict = engine.runtime.settings.model_copy(update={"file_types": ("image/*", "application/PDF")})
    engine.runtime.settings = strict
    for kind in ("image/png", "IMAGE/JPEG; q=1", "application/pdf"):
        await upload(engine, media_type=kind)
    for kind in ("text/html", "application/pdfx", "imagex/png"):
        with pytest.raises(ValidationFailed):
            await upload(engine, media_type=kind)


async def test_the_same_key_is_one_upload(engine: Engine, local_store: FileStore) -> None:
    async def once() -> AsyncIterator[bytes]:
        yield PNG

    first = await upload(engine, key="k")
    assert await upload(engine, once(), key="k") == first
    for wrong in ({"body": b"other"}, {"filename": "x"}, {"metadata": {}}, {"thread_id": "t"}):
        with pytest.raises(IdempotencyConflict):
            await upload(engine, **{"body": PNG, **wrong}, key="k")
    assert await upload(engine, key="k", caller=engine.caller("ben")) != first
    assert len(local_store.contents()) == 2


async def test_an_upload_that_broke_is_begun_anew_with_its_key(engine: Engine, local_store: FileStore) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield PNG
        started.set()
        await ended.wait()

    broken = asyncio.create_task(upload(engine, stuck(), key="k"))
    await started.wait()
    file = await upload(engine, key="k")
    await clean(engine)
    assert len(await rows(engine)) == 2, "somebody may still write the bytes of the first"
    ended.set()
    with pytest.raises(NotFound):
        await broken
    assert local_store.contents() == {file.file_id}
    assert [row["file_id"] for row in await rows(engine)] == [file.file_id]


async def test_an_identity_stores_so_much_and_no_more(engine: Engine, local_store: FileStore) -> None:
    limited = engine.runtime.settings.model_copy(update={"max_stored_bytes": 10_000})
    engine.runtime.settings = limited
    kept = await upload(engine, bytes(4000))

    async def some() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        yield bytes(4000)

    bodies = [bytes(4000) if number % 2 else some() for number in range(6)]
    answers = await asyncio.gather(*(upload(engine, body) for body in bodies), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(answer, RateLimited) and answer.limit == 10_000 for answer in refused), refused
    assert sum(row["byte_size"] for row in await rows(engine)) <= 10_000
    assert len(local_store.contents()) == 7 - len(refused)
    await upload(engine, bytes(4000), caller=engine.caller("ben"))
    await grow_old(engine)
    assert await upload(engine, bytes(10_000)) != kept


async def test_a_cancelled_upload_leaves_nothing(engine: Engine, local_store: FileStore) -> None:
    for size in (0, 1, 9000):
        started = asyncio.Event()

        async def body(size: int = size, started: asyncio.Event = started) -> AsyncIterator[bytes]:
            yield bytes(size)
            started.set()
            await asyncio.Event().wait()

        uploading = asyncio.create_task(upload(engine, body()))
        await started.wait()
        uploading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await uploading
        assert await rows(engine) == []
        assert local_store.contents() == set()


async def test_a_file_that_a_model_made_belongs_to_its_message(engine: Engine, local_store: FileStore) -> None:
    await engine.run("draw")
    request = engine.model.requests[-1]
    assert request.store_file is not None
    stored = await request.store_file(PNG, "image/png")
    assert stored.file_id is not None
    assert stored.url == f"/api/pai/main/files/{stored.file_id}"
    body = await api.read_file(engine.runtime, engine.caller(), ReadFileInput(file_id=stored.file_id))
    assert await body.read() == PNG
    await grow_old(engine)
    assert local_store.contents() == {stored.file_id}
    await api.delete(engine.runtime, engine.caller(), "t")
    with pytest.raises(PaiError):
        await request.store_file(PNG, "image/png")
    await clean(engine)
    assert local_store.contents() == set()


async def test_a_model_is_given_the_newest_files_that_fit(engine: Engine) -> None:
    for worker in engine.workers:
        worker.runtime.settings = worker.runtime.settings.model_copy(update={"model_file_bytes": 9000})
    old, new = await upload(engine, bytes(5000)), await upload(engine, bytes(5000))
    ben = await upload(engine, b"secret", caller=Caller(Identity(subject="ben"), engine.agent()))
    await send(engine, old)
    await engine.idle()
    await send(engine, new)
    await engine.idle()
    load = engine.model.requests[-1].load_file
    assert load is not None
    assert len((await load(new.file_id))[0]) == 5000
    for file_id in (old.file_id, ben.file_id):
        with pytest.raises(NotFound):
            await load(file_id)


async def test_rounds_of_create_use_and_delete_leave_nothing(engine: Engine, local_store: FileStore) -> None:
    for number in range(15):
        await send(engine, await upload(engine, thread_id="t"), await upload(engine, f"{number}".encode()))
        await api.delete(engine.runtime, engine.caller(), "t")
    await clean(engine)
    assert local_store.contents() == set()
    for table in ("file", "file_use"):
        assert await rows(engine, f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("any_database_url", ["postgresql"], indirect=True)
async def test_the_sum_and_the_sweep_read_an_index(engine: Engine) -> None:
    async with engine.runtime.store.write() as connection:
        # A plan for any values, and one that scans tables only where no index will do.
        for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off"):
            await connection.execute(text(f"SET LOCAL {setting}"))
        for number, (statement, index) in enumerate(((_STORED, "ix_file_stored"), (_ANY_DUE, "ix_file_due"))):
            wanted = str(statement.compile(dialect=postgresql.psycopg.dialect()))
            wanted = re.sub(r"%\((\w+)\)s::\w+", lambda found: "$1" if found[1] == "owner" else "1", wanted)
            await connection.exec_driver_sql(f"PREPARE plan_{number} AS {wanted}".replace("%", "%%"))
            values = "('o')" if "$1" in wanted else ""
            plan = str((await connection.execute(text(f"EXPLAIN EXECUTE plan_{number}{values}"))).all())
            assert index in plan, plan
            assert "Index Cond" in plan, plan


def _held(gate: asyncio.Event) -> Any:
    from pai.models.chunks import text as says
    from pai.models.scripted import Turn

    return Turn(chunks=says("late"), gate=gate)
