"""From a new key to a conversation, and to the end of both."""

import os
import subprocess
from pathlib import Path

from support.dev_server import PAICTL, DevServer, dev_server


def paictl(server: DevServer, *argv: str, token: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PAI_HOME": str(server.home), "PAI_URL": server.url, "PAI_IDENTITY": "keys"}
    if token is not None:
        environment["PAI_TOKEN"] = token
    return subprocess.run(
        [str(PAICTL), *argv], env=environment, text=True, capture_output=True, timeout=60, check=False
    )


def test_a_key_opens_a_conversation_until_it_is_revoked(tmp_path: Path) -> None:
    environment = {"PAI_IDENTITY": "keys", "PAI_KEY_CACHE": "0.05"}
    with dev_server(tmp_path / "home", environment=environment) as server:
        stranger = paictl(server, "chat", "count to 2")
        assert (stranger.returncode, stranger.stdout) == (1, "")
        assert "does not know you" in stranger.stderr
        assert "PAI_TOKEN" in stranger.stderr

        key = paictl(server, "keys", "create", "a key", "--subject", "anna").stdout.strip()
        said = paictl(server, "chat", "count to 2", token=key)
        assert (said.returncode, said.stdout) == (0, "1 2\n"), said.stderr

        assert paictl(server, "keys", "revoke", key.split("_")[1]).returncode == 0
        refused = paictl(server, "chat", "count to 2", token=key)
        assert refused.returncode == 1
        assert "revoked" in refused.stderr
