"""Pages of other origins: what a browser sends for them without asking first is refused."""

import pytest
from api_parts import BASE, ServedApi, served
from test_api_bad_input import problem_of

from pai.settings import Settings
from support.file_stores import FileStore

STRANGE = "https://strange.example"
UNASKED = {"content-type": "text/plain"}
"""A type that a page may send anywhere."""


@pytest.fixture
def settings(settings: Settings, local_store: FileStore) -> Settings:
    return settings.model_copy(update=local_store.settings)


async def post(api: ServedApi, path: str, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = b"0123" if path == "files" else b""
    answer = await api.client.post(f"{BASE}/{path}", content=content, headers={**UNASKED, **named})
    if answer.status_code == 403:
        problem_of(answer, 403, "forbidden")
    return answer.status_code


@pytest.mark.parametrize("path", ["files", "threads/t/stop"])
async def test_pages_of_foreign_origins_change_nothing(settings: Settings, path: str, local_store: FileStore) -> None:
    async with served(settings) as api:
        await api.send("t")
        for origin in (STRANGE, "null", "", "http://[", "http://127.0.0.1:1", "http://127.0.0.1"):
            assert await post(api, path, origin=origin) == 403, origin
        assert await post(api, path, origin=STRANGE, sec_fetch_site="cross-site") == 403
    assert local_store.contents() == set()


@pytest.mark.parametrize("path", ["files", "threads/t/stop"])
async def test_own_and_named_origins_and_programs_are_heard(settings: Settings, path: str) -> None:
    async with served(settings.model_copy(update={"cors_origins": (STRANGE,)})) as api:
        await api.send("t")
        own = str(api.client.base_url).rstrip("/")
        for headers in ({}, {"origin": own}, {"origin": STRANGE}):
            assert await post(api, path, **headers) < 300, headers
        # Behind a proxy that rewrites `Host`.
        assert await post(api, path, origin="https://app.example", sec_fetch_site="same-origin") < 300
    async with served(settings.model_copy(update={"cors_origins": ("*",)})) as api:
        assert await post(api, path, origin="https://any.example") < 300
