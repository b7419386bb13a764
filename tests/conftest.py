"""The one Spark session that all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.session import start_session


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
