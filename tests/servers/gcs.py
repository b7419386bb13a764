"""A Google Cloud Storage server: fake-gcs-server, built by `go install`.

It knows conditions and copies in Google's JSON API only, and clients of object stores use the XML
API. So a proxy before it translates uploads and copies.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from resurgence.storage.object_store import ObjectStore
from tests.servers.builds import NoServer, go_binary
from tests.servers.faulty_proxy import faulty_proxy, parsed
from tests.servers.process import running
from tests.servers.proof import require_atomic_create

BUCKET = "tests"
TOKEN = "not-a-secret-but-it-must-never-be-shown"
_SERVER = ("github.com/fsouza/fake-gcs-server", "v1.56.1")
_CONDITION = "x-goog-if-generation-match"
_COPY_SOURCE = "x-goog-copy-source"


@dataclass(frozen=True)
class GcsServer:
    """A running server with one bucket."""

    port: int

    def variables(self) -> dict[str, str]:
        """What a command needs in its environment."""
        return {
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{self.port}",
            "GOOGLE_BEARER_TOKEN": TOKEN,
            "GOOGLE_ALLOW_HTTP": "true",
        }

    def new_url(self) -> str:
        """A folder that no other test uses."""
        return f"gs://{BUCKET}/{uuid.uuid4().hex[:12]}"


@contextmanager
def running_server() -> Iterator[GcsServer]:
    """A server that has passed the proof; NoServer with the reason if there is none."""
    binary = build()
    with tempfile.TemporaryDirectory(prefix="gcs-") as folder:

        def command(port: int) -> list[str]:
            options = ["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory"]
            return [str(binary), *options, "-port", str(port), "-public-host", "127.0.0.1"]

        with running(command, Path(folder), {}) as port:
            _create_bucket(port)
            with (
                faulty_proxy(port, _in_json, _with_etag) as proxy,
                pytest.MonkeyPatch.context() as patch,
            ):
                server = GcsServer(proxy.port)
                for name, value in server.variables().items():
                    patch.setenv(name, value)
                require_atomic_create(ObjectStore(server.new_url()))
                patch.undo()
                yield server


def build() -> Path:
    """Return the program, built if necessary."""
    return go_binary(*_SERVER)


def _create_bucket(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    kind = {"Content-Type": "application/json"}
    connection.request("POST", "/storage/v1/b", json.dumps({"name": BUCKET}), kind)
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise NoServer(f"fake-gcs-server answered {status} to the creation of a bucket")


def _in_json(head: bytes) -> bytes:
    """The head of a request: uploads and copies by the JSON API."""
    method, path, headers = parsed(head)
    if method != "PUT":
        return head
    bucket, name = path.lstrip("/").split("/", 1)
    if _COPY_SOURCE in headers:
        source, original = headers[_COPY_SOURCE].lstrip("/").split("/", 1)
        copied = f"b/{source}/o/{quote(original, safe='%')}"
        target = f"/storage/v1/{copied}/copyTo/b/{bucket}/o/{quote(name, safe='%')}"
    else:
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='%')}"
        if _CONDITION in headers:
            target += f"&ifGenerationMatch={headers[_CONDITION]}"
    return f"POST {target} HTTP/1.1\r\n".encode() + head.partition(b"\r\n")[2]


def _with_etag(answer: bytes) -> bytes:
    """An answer with the headers that the JSON API does not have."""
    first, _, rest = answer.partition(b"\r\n")
    if b"\r\netag:" in answer.partition(b"\r\n\r\n")[0].lower():
        return answer
    return first + b'\r\nETag: "0"\r\nX-Goog-Generation: 1\r\n' + rest
