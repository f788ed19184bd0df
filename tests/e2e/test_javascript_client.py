"""The chunks that PAI streams, folded by the AI SDK itself, are the messages that PAI stores."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.dev_server import REPOSITORY, DevServer, dev_server
from support.servers import missing

JAVASCRIPT = REPOSITORY / "tests" / "js"


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        missing("Node.js")
    if not (JAVASCRIPT / "node_modules" / "ai").exists():
        missing("npm's `ai` (run `make js`)")
    return found


@pytest.fixture(scope="module")
def server(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("javascript") / "home") as running:
        yield running


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("text", ["count to 20", "count to 3"]),
        ("reasoning", ["think about the weather in Paris", "think about it"]),
        ("tools", ['call count {"to": 3, "seconds": 0.05}\ncall get_weather {"city": "Rome"}\nthen call get_weather']),
        ("errors", ['call get_weather {"city": ""}\ncall get_weather {"town": 1}\ncall nobody {}']),
    ],
)
def test_the_ai_sdk_folds_the_same_messages(server: DevServer, node: str, name: str, texts: list[str]) -> None:
    thread = f"{server.url}/api/pai/main/threads/{name}"
    done = subprocess.run(
        [node, "fold.mjs", thread, *texts], cwd=JAVASCRIPT, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    folded = json.loads(done.stdout)
    stored = [message for message in httpx.get(thread).json()["messages"] if message["role"] == "assistant"]
    assert len(stored) >= len(texts)
    assert folded == stored


def test_the_version_that_is_tested_is_the_one_that_the_manifest_names(server: DevServer) -> None:
    package = json.loads((JAVASCRIPT / "package.json").read_text())
    manifest = httpx.get(f"{server.url}/api/pai/main").json()
    assert manifest["protocol"]["chunks"] == f"ai-sdk@{package['dependencies']['ai']}"


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((JAVASCRIPT / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    for python_lock in sorted(Path(REPOSITORY).glob("requirements*.lock")):
        assert "://" not in python_lock.read_text()
