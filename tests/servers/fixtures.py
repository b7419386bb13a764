"""The servers as fixtures. A server that cannot be had here skips its tests, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers import azure, duckdb_reader, gcs, iceberg, kafka, s3, spark_jars
from tests.servers.azure import AzureServer
from tests.servers.builds import NoServer
from tests.servers.faulty_proxy import FaultyProxy, faulty_proxy
from tests.servers.gcs import GcsServer
from tests.servers.iceberg import IcebergServer
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Server
from tests.servers.schema_registry import SchemaRegistryServer, running_registry

Server = TypeVar("Server")


def _started(name: str, server: AbstractContextManager[Server]) -> Iterator[Server]:
    try:
        with server as running:
            yield running
    except NoServer as error:
        pytest.skip(f"no {name} server: {error}")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    yield from _started("S3", s3.running_server())


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    yield from _started("Azure", azure.running_server())


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    yield from _started("Google Cloud Storage", gcs.running_server())


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One broker for all tests: each creates its own topics, and none may stop it."""
    yield from _started("Kafka", kafka.running_broker())


@pytest.fixture(scope="session")
def iceberg_server() -> Iterator[IcebergServer]:
    """One REST catalog on a local warehouse for all tests: each creates its own namespace."""
    yield from _started("Iceberg", iceberg.running_catalog())


@pytest.fixture(scope="session")
def schema_registry_server() -> Iterator[SchemaRegistryServer]:
    yield from _started("schema registry", running_registry())


@pytest.fixture
def schema_registry(schema_registry_server: SchemaRegistryServer) -> SchemaRegistryServer:
    """The schema registry, without subjects; the id of a schema is never used again."""
    schema_registry_server.clear()
    return schema_registry_server


@pytest.fixture(scope="session")
def duckdb_rows() -> Callable[[str], list[list[object]]]:
    """Returns the rows of a query of lakehouse tables by DuckDB."""
    try:
        duckdb_reader.build()
    except NoServer as error:
        pytest.skip(f"no DuckDB: {error}")
    return duckdb_reader.rows


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    """The jars for Kafka, which the Spark session of the tests has loaded if they are installed."""
    return _jars("kafka")


@pytest.fixture(scope="session")
def avro_jars() -> tuple[Path, ...]:
    """The same for Avro."""
    return _jars("avro")


def _jars(name: str) -> tuple[Path, ...]:
    found = spark_jars.installed_jars(name)
    if not found:
        pytest.skip(f"no jars for {name}: `python -m tests.servers kafka` installs them")
    return found


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new folder on the server, with the variables in the environment of this process."""
    _set(monkeypatch, s3_server.variables())
    return s3_server.new_url()


@pytest.fixture
def azure_url(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for Azure."""
    _set(monkeypatch, azure_server.variables())
    return azure_server.new_url()


@pytest.fixture
def gcs_url(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for Google Cloud Storage."""
    _set(monkeypatch, gcs_server.variables())
    return gcs_server.new_url()


@pytest.fixture
def s3_proxy(
    s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyProxy]:
    """A proxy, which `s3_url` is reached by."""
    with faulty_proxy(s3_server.port) as proxy:
        _set(monkeypatch, s3_server.variables(proxy.port))
        yield proxy


def _set(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
