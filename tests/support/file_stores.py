"""Stores for files: a folder, and a bucket on an S3-compatible server that runs in a process of its own.

Name this module in `pytest_plugins` to have the fixtures.
"""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai.files.provider import FileProvider, provider_of
from pai.settings import Settings
from support.servers import free_port, missing
from support.waiting import wait_until_sync

_buckets = itertools.count(1)


@dataclass
class FileStore:
    """`settings`: what makes PAI use it."""

    kind: str
    settings: dict[str, Any]
    folder: Path | None = None
    bucket: Any = field(default=None, repr=False)

    def provider(self) -> FileProvider:
        return provider_of(Settings(**self.settings))

    def contents(self) -> set[str]:
        """The names of everything that takes room: whole files, and what is left of unfinished ones."""
        if self.folder is not None:
            return {path.name for path in self.folder.rglob("*") if path.is_file()}
        whole = {item.key.rpartition("/")[2] for item in self.bucket.objects.all()}
        return whole | {
            f"{upload.object_key.rpartition('/')[2]}.part" for upload in self.bucket.multipart_uploads.all()
        }


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3-compatible server that knows no secrets."""
    try:
        import boto3  # noqa: F401
        import moto.server  # noqa: F401
    except ImportError:
        missing("the extra [s3] with moto's server")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_sync(lambda: _listens(port) or server.poll() is not None)
        assert server.poll() is None, "moto's server ended"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def local_store(tmp_path: Path) -> FileStore:
    folder = tmp_path / "files"
    return FileStore("local", {"files": str(folder)}, folder=folder)


@pytest.fixture
def s3_store(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileStore]:
    import boto3

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    resource = boto3.session.Session().resource("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    bucket = resource.Bucket(f"files-{next(_buckets)}")
    bucket.create()
    settings = {"files": f"s3://{bucket.name}/kept", "s3_endpoint_url": s3_endpoint, "s3_region": "us-east-1"}
    yield FileStore("s3", settings, bucket=bucket)
    bucket.objects.all().delete()
    resource.meta.client.close()


@pytest.fixture(params=["local", "s3"])
def file_store(request: pytest.FixtureRequest) -> FileStore:
    """The same test on a folder and on a bucket."""
    store: FileStore = request.getfixturevalue(f"{request.param}_store")
    return store
