"""Shared by all tests of a process: one Spark session, one Postgres server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from resurgence.engine.spark.connector_jars import with_jars
from resurgence.engine.spark.session import start_session
from tests.faults.scenario import Scenario, made_scenario
from tests.namespaces import victim_namespace
from tests.postgres import postgres_server, postgres_url
from tests.servers.fixtures import (
    avro_jars,
    azure_server,
    azure_url,
    duckdb_rows,
    gcs_server,
    gcs_url,
    iceberg_server,
    kafka_broker,
    kafka_jars,
    s3_proxy,
    s3_server,
    s3_url,
    schema_registry,
    schema_registry_server,
)
from tests.servers.spark_jars import installed_jars

__all__ = [
    "avro_jars",
    "azure_server",
    "azure_url",
    "duckdb_rows",
    "gcs_server",
    "gcs_url",
    "iceberg_server",
    "kafka_broker",
    "kafka_jars",
    "postgres_server",
    "postgres_url",
    "s3_proxy",
    "s3_scenario",
    "s3_server",
    "s3_url",
    "schema_registry",
    "schema_registry_server",
    "spark",
    "victim_namespace",
]

hypothesis.settings.register_profile("fixed", derandomize=True, database=None)
hypothesis.settings.register_profile("exploring", print_blob=True, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_FOLDER = Path(__file__).parent
_LONGEST = ("sql", "integration", "faults", "stores", "engine", "property")
"""The folders with the longest files."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: processes that share the files should end together."""
    order = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(
        key=lambda item: (
            order.get(item.path.relative_to(_FOLDER).parts[0], len(order))
            if item.path.is_relative_to(_FOLDER)
            else len(order)
        )
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session, jvm = start_session(
        app_name="tests",
        master="local[2]",
        memory="1g",
        shuffle_partitions=4,
        conf=with_jars({}, installed_jars()),
        log_file=tmp_path_factory.mktemp("spark") / "jvm.log",
    )
    yield session
    session.stop()
    jvm.close()


@pytest.fixture
def s3_scenario(spark: SparkSession, tmp_path: Path, s3_url: str) -> Scenario:
    """With its state and its folder of Parquet on the S3 server."""
    return made_scenario(spark, tmp_path, s3_url)
