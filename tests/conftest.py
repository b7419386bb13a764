"""What all tests of a process share: one Spark session, one Postgres server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.session import start_session
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session, jvm = start_session(
        app_name="tests",
        master="local[2]",
        memory="1g",
        shuffle_partitions=4,
        conf={},
        log_file=tmp_path_factory.mktemp("spark") / "jvm.log",
    )
    yield session
    session.stop()
    jvm.close()
