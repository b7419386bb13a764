"""An Azure Blob Storage server: Azurite, from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from resurgence.storage.object_store import ObjectStore
from tests.servers.builds import NoServer, npm_package
from tests.servers.process import running
from tests.servers.proof import require_atomic_create

ACCOUNT = "tests"
KEY = "bm90LWEtc2VjcmV0LWJ1dC1pdC1tdXN0LW5ldmVyLWJlLXNob3du"
CONTAINER = "tests"
_AZURITE = ("azurite", "3.37.0")


@dataclass(frozen=True)
class AzureServer:
    """A running server with one container."""

    port: int

    def variables(self) -> dict[str, str]:
        """What a command needs in its environment."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_url(self) -> str:
        """A folder that no other test uses."""
        return f"az://{CONTAINER}/{uuid.uuid4().hex[:12]}"


@contextmanager
def running_server() -> Iterator[AzureServer]:
    """A server that has passed the proof; NoServer with the reason if there is none."""
    program = build()
    options = ["--blobHost", "127.0.0.1", "--silent", "--inMemoryPersistence"]
    # A newer client than the server knows is not refused.
    options += ["--skipApiVersionCheck", "--disableTelemetry"]
    with tempfile.TemporaryDirectory(prefix="azure-") as folder:
        accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

        def command(port: int) -> list[str]:
            return ["node", str(program), "--blobPort", str(port), *options]

        with running(command, Path(folder), accounts) as port:
            server = AzureServer(port)
            _create_container(server)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in server.variables().items():
                    patch.setenv(name, value)
                require_atomic_create(ObjectStore(server.new_url()))
            yield server


def build() -> Path:
    """Return the program, installed if necessary."""
    return npm_package(*_AZURITE) / "azurite" / "dist" / "src" / "blob" / "main.js"


def _create_container(server: AzureServer) -> None:
    """With a request signed by hand: clients of object stores do not create containers."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = f"PUT\n{11 * chr(10)}{signed}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
    status = connection.getresponse().status
    connection.close()
    if status != 201:
        raise NoServer(f"Azurite answered {status} to the creation of a container")
