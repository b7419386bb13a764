"""The jars for Kafka and Avro on a real Spark, and their real download."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro

from resurgence.engine.spark.connector_jars import install, spark_version, with_jars
from resurgence.engine.spark.jar_sets import JAR_SETS, fits
from resurgence.errors import JarsUnavailable
from tests.servers.kafka import KafkaBroker
from tests.spark_cluster import SparkCluster, spark_cluster

__all__ = ["spark_cluster"]

ROOT = Path(__file__).parents[2]


def test_spark_reads_a_topic(
    spark: SparkSession, kafka_jars: tuple[Path, ...], kafka_broker: KafkaBroker
) -> None:
    topic = kafka_broker.create_topic()
    kafka_broker.produce(topic, [b"one", b"two"])
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka_broker.bootstrap)
    rows = reader.option("subscribe", topic).load().selectExpr("offset", "string(value) AS value")
    assert sorted(map(tuple, rows.collect())) == [(0, "one"), (1, "two")]


def test_spark_reads_avro(spark: SparkSession, avro_jars: tuple[Path, ...]) -> None:
    rows = spark.range(3).select(to_avro("id", '"long"').alias("data"))
    read = rows.select(from_avro("data", '"long"').alias("id"))
    assert sorted(row.id for row in read.collect()) == [0, 1, 2]


@pytest.mark.long
def test_executors_of_a_cluster_get_the_jars_from_the_driver(
    kafka_jars: tuple[Path, ...], kafka_broker: KafkaBroker, spark_cluster: SparkCluster
) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    kafka_broker.produce(topic, [(None, b"one", (), None, 0), (None, b"two", (), None, 1)])
    conf = dict(each.split("=", 1) for each in spark_cluster.settings)
    conf = with_jars(conf, kafka_jars)
    done = subprocess.run(
        [sys.executable, "-m", "tests.kafka.read_topic", kafka_broker.bootstrap, topic],
        input=json.dumps(conf),
        capture_output=True,
        text=True,
        timeout=180,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == ["one", "two"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["kafka", "avro"])
def test_jars_are_downloaded_from_the_public_repository(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path))
    try:
        manifest = install(name, print)
    except JarsUnavailable as error:
        pytest.skip(error.message)
    modules = JAR_SETS[name].modules
    assert [each.coordinates for each in manifest.jars] == [
        module.at(each.version) for module, each in zip(modules, manifest.jars, strict=True)
    ]
    for module, each in zip(modules, manifest.jars, strict=True):
        assert fits(module, each.version, spark_version())
