"""The scenario, on every kind of storage."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.scenario import Scenario, made_scenario


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.long)])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """On a local disk, and on an S3 server."""
    made: Scenario = request.getfixturevalue(f"{request.param}_scenario")
    return made


@pytest.fixture
def disk_scenario(spark: SparkSession, tmp_path: Path) -> Scenario:
    return made_scenario(spark, tmp_path, str(tmp_path))
