"""A schema registry with Confluent's HTTP protocol: Apicurio Registry, from its Maven artifact, with
its schemas in memory. Confluent's own is not on Maven Central.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from resurgence.engine.spark.java import find_java
from tests.servers.builds import NoServer, maven_archive
from tests.servers.process import running

_VERSION = "3.0.9"
_ARCHIVE = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
_API = "/apis/ccompat/v7"
_JSON = "application/vnd.schemaregistry.v1+json"
_START_DEADLINE = 30.0
_REQUEST_DEADLINE = 10.0


@dataclass(frozen=True)
class SchemaRegistryServer:
    """A running registry."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_API}"

    def add(self, subject: str, schema: str, kind: str = "AVRO", **more: object) -> int:
        """Register a schema, and return its id."""
        body = {"schema": schema, "schemaType": kind, **more}
        answer = self._request("POST", _versions(subject), body)
        return int(answer["id"])

    def subjects(self) -> set[str]:
        """The names of all subjects that are not deleted."""
        return {*self._request("GET", "/subjects")}

    def schemas(self, subject: str) -> dict[int, str]:
        """The schemas of a subject by their ids, in the order of its versions."""
        numbers = self._request("GET", _versions(subject))
        found = [self._request("GET", f"{_versions(subject)}/{each}") for each in numbers]
        return {each["id"]: each["schema"] for each in found}

    def delete_version(self, subject: str, version: int) -> None:
        """Delete a version, so that it is listed and read only if that is asked for."""
        self._request("DELETE", f"{_versions(subject)}/{version}")

    def require_compatibility(self, subject: str, level: str) -> None:
        path = f"/config/{_quoted(subject)}"
        self._request("PUT", path, {"compatibility": level})

    def clear(self) -> None:
        """Delete all subjects for good, the newest first: older ones may not be deleted while it
        refers to them.
        """
        for subject in reversed(self._request("GET", "/subjects?deleted=true")):
            path = f"/subjects/{_quoted(subject)}"
            self._request("DELETE", path)
            self._request("DELETE", f"{path}?permanent=true")

    def _request(self, method: str, path: str, body: dict[str, object] | None = None) -> Any:
        answer = httpx.request(
            method,
            self.url + path,
            json=body,
            headers={"Accept": _JSON, "Content-Type": _JSON},
            timeout=_REQUEST_DEADLINE,
        )
        return answer.raise_for_status().json()


@contextmanager
def running_registry() -> Iterator[SchemaRegistryServer]:
    """A registry that answers; NoServer with the reason if there is none."""
    with (
        tempfile.TemporaryDirectory(prefix="schema-registry-") as folder,
        running(_command(folder), Path(folder), {}) as port,
    ):
        registry = SchemaRegistryServer(port)
        _wait_for(registry)
        yield registry


def build() -> Path:
    """Return the folder of the server, installed if necessary."""
    return maven_archive("schema-registry", _ARCHIVE)


def _wait_for(registry: SchemaRegistryServer) -> None:
    """Wait for its first answer, which may be later than an open port."""
    give_up_at, reason = time.monotonic() + _START_DEADLINE, ""
    while time.monotonic() < give_up_at:
        try:
            registry.subjects()
            return
        except httpx.HTTPError as error:
            reason = str(error)
        time.sleep(0.05)
    raise NoServer(f"no answer within {_START_DEADLINE:g} s: {reason}")


def _versions(subject: str) -> str:
    return f"/subjects/{_quoted(subject)}/versions"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _command(folder: str) -> Callable[[int], list[str]]:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    settings = {
        "java.io.tmpdir": folder,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.access-log.enabled": "false",
        'quarkus.log.category."io.apicurio".level': "WARN",
        "apicurio.import.work-dir": folder,
        "apicurio.datasource.jdbc.initial-size": "1",
        "apicurio.datasource.jdbc.min-size": "1",
    }
    pairs = [f"-D{name}={value}" for name, value in settings.items()]
    jar = build() / f"apicurio-registry-app-{_VERSION}-runner.jar"
    start = [find_java().executable, *options, *pairs]
    return lambda port: [*start, f"-Dquarkus.http.port={port}", "-jar", str(jar)]
