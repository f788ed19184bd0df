"""What people attach reaches each provider as its own kind of input, and what a model makes is kept as a file."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_parts import Engine, said

from pai.contract import StepPreparation
from pai.engine import api
from pai.models import resolve_model
from pai.models.adapter import PydanticAIModel
from pai.protocol.files import FileUploadInput, ReadFileInput
from pai.settings import Settings
from support.fake_providers import PROVIDERS, FakeProvider, Reply, fake_provider, text_reply
from support.file_stores import FileStore

NAMES = {
    "openai": "gpt-6-luna",
    "openai-chat": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "google": "gemini-3.8-flash",
}
PNG, PDF, TEXT, ZIP = b"\x89PNG pixels", b"%PDF-1.7 pages", "Zeilen mit ü".encode(), b"PK\x03\x04 packed"
FOREIGN = "http://169.254.169.254/latest/meta-data"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


INPUTS: dict[str, list[Any]] = {
    "openai": [
        {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(PNG)}"},
        {"type": "input_file", "file_data": f"data:application/pdf;base64,{encoded(PDF)}"},
    ],
    "openai-chat": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(PNG)}"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{encoded(PDF)}"}},
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded(PDF)}},
    ],
    "google": [
        {"inlineData": {"mime_type": "image/png", "data": encoded(PNG)}},
        {"inlineData": {"mime_type": "application/pdf", "data": encoded(PDF)}},
    ],
}


@pytest.fixture
def engine_settings(engine_settings: Settings, local_store: FileStore) -> Settings:
    return engine_settings.model_copy(update=local_store.settings)


@pytest.fixture
def any_database_url(sqlite_url: str) -> str:
    """What is in a request does not depend on the database."""
    return sqlite_url


@pytest.fixture(params=PROVIDERS)
async def provider(request: pytest.FixtureRequest, engine: Engine) -> AsyncIterator[tuple[str, FakeProvider]]:
    """The engine's agent `hooked` with a model of this provider."""
    async with connected(request.param, engine, text_reply("I see")) as fake:
        yield request.param, fake


class connected:
    def __init__(self, name: str, engine: Engine, *replies: Reply) -> None:
        self._name, self._engine, self._serving = name, engine, fake_provider(*replies)

    async def __aenter__(self) -> FakeProvider:
        fake = await self._serving.__aenter__()
        base_url = fake.base_url(self._name)
        self._model = resolve_model(f"{self._name}:{NAMES[self._name]}", base_url=base_url, api_key="sk-test")
        self._engine.stage.preparation = StepPreparation(model=self._model)
        return fake

    async def __aexit__(self, *error: Any) -> None:
        assert isinstance(self._model, PydanticAIModel)
        await self._model.aclose()
        await self._serving.__aexit__(*error)


async def upload(engine: Engine, body: bytes, media_type: str, filename: str) -> dict[str, Any]:
    asked = FileUploadInput(body=body, media_type=media_type, filename=filename)
    reply = await api.upload_file(engine.runtime, engine.caller(agent="hooked"), asked)
    return {"type": "attachment", "fileId": reply.result.file_id}


async def say(engine: Engine, *parts: dict[str, Any]) -> dict[str, Any]:
    message = {"message": {"parts": [{"type": "text", "text": "look"}, *parts]}}
    await api.send(engine.runtime, engine.caller(agent="hooked"), "t", said("").model_validate(message))
    return await engine.idle(agent="hooked")


def found(wanted: Any, value: Any) -> bool:
    """Whether something like `wanted`, perhaps with more keys, is anywhere in a JSON value."""
    if _like(wanted, value):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(found(wanted, item) for item in inner)


def _like(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(value, dict):
        return all(key in value and _like(item, value[key]) for key, item in wanted.items())
    return bool(wanted == value)


async def test_an_attachment_is_input_of_the_model(engine: Engine, provider: tuple[str, FakeProvider]) -> None:
    name, fake = provider
    state = await say(
        engine,
        await upload(engine, PNG, "image/png", "a.png"),
        await upload(engine, PDF, "application/pdf", "a.pdf"),
        await upload(engine, TEXT, "text/plain; charset=utf-8", "a.txt"),
        await upload(engine, ZIP, "application/zip", "a.zip"),
        await upload(engine, b"", "image/png", "empty.png"),
    )
    assert state["runs"][-1]["status"] == "completed", state["error"]
    body = fake.bodies[-1]
    for wanted in INPUTS[name]:
        assert found(wanted, body), json.dumps(body)
    told = json.dumps(body, ensure_ascii=False)
    assert "Attached file a.txt (text/plain):\\n\\nZeilen mit ü" in told
    assert "[Attached file a.zip (application/zip), which cannot be read]" in told
    assert encoded(ZIP) not in told
    assert "[Attached file empty.png (image/png), which cannot be read]" in told


async def test_a_file_that_is_gone_spoils_no_conversation(
    engine: Engine, provider: tuple[str, FakeProvider], local_store: FileStore
) -> None:
    _, fake = provider
    await say(engine, await upload(engine, PNG, "image/png", "a.png"))
    assert local_store.folder is not None
    for path in local_store.folder.rglob("file_*"):
        path.unlink()
    state = await say(engine)
    assert state["runs"][-1]["status"] == "completed", state["error"]
    assert "[Attached file a.png (image/png), which cannot be read]" in json.dumps(fake.bodies[-1])


async def test_a_foreign_address_is_never_fetched(
    engine: Engine, provider: tuple[str, FakeProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of tests refuses every address but loopback, and a refused fetch would fail the run."""
    _, fake = provider
    kinds = ("image/png", "application/pdf", "text/plain", "audio/wav", "video/mp4", "application/zip")
    state = await say(engine, *({"type": "file", "url": FOREIGN, "mediaType": kind} for kind in kinds))
    assert state["runs"][-1]["status"] == "completed", state["error"]
    assert len(fake.bodies) == 1
    assert FOREIGN in json.dumps(fake.bodies[-1])


async def test_what_a_model_makes_is_kept_as_a_file(engine: Engine, local_store: FileStore) -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": encoded(PNG)}}
    made = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}],
        "modelVersion": "gemini-2.5-flash",
        "responseId": "r",
    }
    replies = Reply(raw=f"data: {json.dumps(made)}\r\n\r\n".encode()), text_reply("there")
    async with connected("google", engine, *replies) as fake:
        state = await say(engine)
        assert state["runs"][-1]["status"] == "completed", state["error"]
        [shown] = [part for part in state["messages"][-1]["parts"] if part["type"] == "file"]
        file_id = shown["providerMetadata"]["pai"]["fileId"]
        assert shown["url"] == f"/api/pai/hooked/files/{file_id}"
        assert local_store.contents() == {file_id}
        asked = ReadFileInput(file_id=file_id)
        body = await api.read_file(engine.runtime, engine.caller(agent="hooked"), asked)
        assert await body.read() == PNG
        await say(engine)
        assert found(INPUTS["google"][0], fake.bodies[-1]), "the model sees again what it made"
