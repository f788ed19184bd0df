"""What an application imports: complete, light, and shown by the demo agent."""

import subprocess
import sys

import pytest

import pai
from pai import Rehearsal, ToolError
from pai.contract import Registry, manifest
from pai.demo import registry

HEAVY = (
    "fastapi",
    "starlette",
    "celery",
    "kombu",
    "sqlalchemy",
    "sqlmodel",
    "redis",
    "pydantic_ai",
    "openai",
    "anthropic",
    "httpx",
)


def test_every_name_that_the_package_offers_is_there() -> None:
    assert sorted(pai._MODULES) == pai.__all__
    for name in pai.__all__:
        assert getattr(pai, name).__name__ == name
    assert set(pai.__all__) <= set(dir(pai))
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        pai.Agnet  # noqa: B018


@pytest.mark.parametrize("module", ["pai", "pai.contract", "pai.settings", "pai.demo"])
def test_an_import_brings_neither_a_server_nor_a_provider(module: str) -> None:
    code = f"import {module}, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == []


async def test_the_demo_agent_shows_every_kind_of_tool() -> None:
    agent = registry.get("main")
    assert [tool.kind.value for tool in agent.tools.values()] == ["server", "server", "server", "client", "external"]
    assert manifest(agent)["commands"][0]["name"] == "archive"
    assert list(Registry.load("pai.demo:registry")) == [agent]

    weather = await Rehearsal(agent, "get_weather").run({"city": "Oslo"})
    assert weather["city"] == "Oslo"
    with pytest.raises(ToolError, match="Name a city"):
        await Rehearsal(agent, "get_weather").run({"city": " "})

    counting = Rehearsal(agent, "count")
    assert await counting.run({"to": 4, "seconds": 0}) == 4
    assert counting.tool_data == {"progress": {"percent": 100}}

    draft = {"title": "Big News", "body": "..."}
    publishing = Rehearsal(agent, "publish_post")
    await publishing.run(draft)
    assert publishing.pending == ("approval", draft)
    publishing.answers["approval"] = {"approved": True, "comment": "ok"}
    published = await publishing.run(draft)
    assert published == {"published": True, "url": "https://example.com/posts/big-news", "comment": "ok"}

    refused = Rehearsal(agent, "publish_post", answers={"approval": {"approved": False}})
    assert (await refused.run(draft))["published"] is False
    assert refused.steps == []
