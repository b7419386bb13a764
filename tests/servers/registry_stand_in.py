"""A stand-in for a schema registry, for what the real one of the tests cannot do: fail, be slow,
count requests, and ask for a password without an identity provider.

It speaks the part of the HTTP protocol that a client of one subject needs: versions, registration,
basic authentication. It checks no compatibility. `schema_registry.py` has the real one.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_START_DEADLINE = 10.0


@dataclass
class RegistryStandIn:
    """The schemas of a registry, and how it answers."""

    url: str = ""
    user: str | None = None
    password: str = ""
    schemas: list[dict[str, str]] = field(default_factory=list)
    """By id, from 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """The ids of each subject, by version from 1."""
    requests: list[str] = field(default_factory=list)
    status: int | None = None
    """If set, every request is refused with it."""
    delay: float = 0.0
    body: bytes | None = None
    """If set, the answer to every request."""

    def add(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """Register a schema, once."""
        entry = {"schema": schema, "schemaType": kind}
        if entry not in self.schemas:
            self.schemas.append(entry)
        number = self.schemas.index(entry) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, str]) -> tuple[int, Any]:
        match [method, *(unquote(each) for each in path.strip("/").split("/"))]:
            case ["GET", "subjects", subject, "versions"] if subject in self.subjects:
                return 200, [*range(1, len(self.subjects[subject]) + 1)]
            case ["GET", "subjects", subject, "versions", version] if subject in self.subjects:
                return self._version(subject, version)
            case ["POST", "subjects", subject, "versions"]:
                return 200, {
                    "id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))
                }
        return 404, {"error_code": 40401, "message": "Subject not found."}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        ids = self.subjects[subject]
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            return 404, {"error_code": 40402, "message": "Version not found."}
        found = {"subject": subject, "version": number, "id": ids[number - 1]}
        return 200, {**found, **self.schemas[ids[number - 1] - 1]}

    def admits(self, authorization: str | None) -> bool:
        if self.user is None:
            return True
        expected = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return authorization == f"Basic {expected}"


@contextmanager
def running_stand_in() -> Iterator[RegistryStandIn]:
    """A stand-in on a free port."""
    registry = RegistryStandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            path = urlsplit(self.path).path
            registry.requests.append(f"{self.command} {path}")
            time.sleep(registry.delay)
            if not registry.admits(self.headers.get("Authorization")):
                status, found = 401, {"error_code": 401, "message": "Unauthorized"}
            elif registry.status is not None:
                status, found = (
                    registry.status,
                    {"error_code": registry.status, "message": "refused by the test"},
                )
            else:
                status, found = registry.answer(self.command, path, body)
            data = registry.body if registry.body is not None else json.dumps(found).encode()
            # A client that has given up is gone.
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_START_DEADLINE)
