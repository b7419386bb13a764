"""`resurgence run` over a topic: workers are killed, and the output is the batch answer."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.conftest import QUICK, Project, settings
from tests.kafka.topics import event
from tests.servers.kafka import KafkaBroker

SQL = """
CREATE TABLE rides (
  id BIGINT NOT NULL, at TIMESTAMP NOT NULL, kind TEXT,
  WATERMARK FOR at AS at - INTERVAL '20 seconds'
) WITH (
  connector = 'kafka', bootstrap_servers = '{bootstrap}', topic = '{topic}', format = 'json',
  type = 'source', 'source.offset' = 'earliest', 'source.stop_at' = 'latest'
);
CREATE TABLE totals (start TIMESTAMP, kind TEXT, n BIGINT, ids BIGINT)
WITH (connector = 'filesystem', path = 'out', format = 'parquet', type = 'sink');

INSERT INTO totals SELECT window.start, kind, n, ids FROM (
  SELECT tumble(INTERVAL '10 seconds') AS window, kind, count(*) AS n, sum(id) AS ids
  FROM rides GROUP BY window, kind);
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.close()


@pytest.mark.timeout(400)
def test_killed_workers_over_skewed_partitions_give_the_batch_answer(
    spark: SparkSession,
    kafka_jars: tuple[Path, ...],
    kafka_broker: KafkaBroker,
    project: Project,
) -> None:
    topic = kafka_broker.create_topic(partitions=3)
    rng = random.Random(7)
    records = [
        event(
            number,
            number / 10 + rng.uniform(0, 15),
            partition=rng.choices(range(3), (8, 1, 1))[0],
            kind=rng.choice("ab"),
        )
        for number in range(1500)
    ]
    kafka_broker.produce(topic, records)
    sql = SQL.format(bootstrap=kafka_broker.bootstrap, topic=topic)
    (project.folder / "rides.sql").write_text(sql)
    faults = "state.written@2=kill,sink.committed@3=kill"
    process = project.start(
        *("--epoch-rows", "150", "--name", topic), *settings(*QUICK, f"faults={faults}")
    )
    project.wait_for("committed", epoch=5)
    os.kill(project.events("worker_started")[-1]["pid"], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert [each["kind"] for each in project.events("failure")] == ["worker_exited"] * 3
    assert len(project.events("incident")) == 3
    rows = {each["epoch"]: each for each in project.events("checkpoint")}
    assert sum(each["rows"] for each in rows.values()) == 1500
    assert sum(each["late"] for each in rows.values()) == 0
    assert project.events("committed")[-1]["lag"]["rows"] == 0

    (project.folder / "rides.json").write_bytes(b"\n".join(each.value or b"" for each in records))
    read = spark.read.schema("id BIGINT, at TIMESTAMP, kind STRING")
    read.json(str(project.folder / "rides.json")).createOrReplaceTempView("batch_rides")
    expected = spark.sql(
        "SELECT window(at, '10 seconds').start AS start, kind, count(*) AS n, sum(id) AS ids"
        " FROM batch_rides GROUP BY 1, 2"
    )
    found = spark.read.parquet(str(project.folder / "out"))
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))
