"""Fixtures of the tests with topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka.topics import TopicJob
from tests.servers.kafka import KafkaBroker


@pytest.fixture
def topics(
    spark: SparkSession, kafka_jars: tuple[Path, ...], kafka_broker: KafkaBroker, tmp_path: Path
) -> TopicJob:
    return TopicJob(spark, kafka_broker, tmp_path)
