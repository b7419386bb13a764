"""An S3 server: versitygw on a local folder, built by `go install`."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from resurgence.storage.object_store import ObjectStore
from tests.servers.builds import go_binary
from tests.servers.process import running
from tests.servers.proof import require_atomic_create

ACCESS_KEY = "resurgence-tests"
SECRET_KEY = "not-a-secret-but-it-must-never-be-shown"
BUCKET = "tests"
_VERSITYGW = ("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def variables(self, port: int | None = None) -> dict[str, str]:
        """What a command needs in its environment; `port`: of a proxy before the server."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def new_url(self) -> str:
        """A folder that no other test uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"


@contextmanager
def running_server() -> Iterator[S3Server]:
    """A server that has passed the proof; NoServer with the reason if there is none."""
    with tempfile.TemporaryDirectory(prefix="s3-") as text:
        folder = Path(text)
        (folder / "data" / BUCKET).mkdir(parents=True)
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with running(_command(folder), folder, keys) as port:
            server = S3Server(port)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in server.variables().items():
                    patch.setenv(name, value)
                require_atomic_create(ObjectStore(server.new_url()))
            yield server


def build() -> Path:
    """Return the program, built if necessary."""
    return go_binary(*_VERSITYGW)


def _command(folder: Path) -> Callable[[int], list[str]]:
    binary = build()
    (folder / "metadata").mkdir()
    posix = ["posix", "--sidecar", str(folder / "metadata"), str(folder / "data")]
    return lambda port: [str(binary), "--quiet", "--port", f"127.0.0.1:{port}", *posix]
