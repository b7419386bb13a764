"""`resurgence rollback` of a job that writes to Kafka."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from resurgence.cli.app import app
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from tests.engine.harness import Job, Leg, source_table, write_lines
from tests.servers.kafka import KafkaBroker


def test_a_rollback_says_that_kafka_cannot_retract_and_asks_to_accept_duplicates(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, markers = kafka_broker.create_topic(), f"markers-{uuid.uuid4().hex[:8]}"
    rows = [{"at": f"2024-03-01T10:00:{number:02}", "id": number} for number in range(30)]
    events = write_lines(tmp_path / "events.json", rows)
    sql = source_table(events, "at TIMESTAMP NOT NULL, id BIGINT") + (
        f"CREATE TABLE out WITH (connector = 'kafka', type = 'sink', topic = '{topic}',"
        f" bootstrap_servers = '{kafka_broker.bootstrap}', 'sink.marker_topic' = '{markers}');\n"
        "INSERT INTO out SELECT id FROM events"
    )
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(rows=10))
    for _ in range(2):
        engine.run_epoch()
    (tmp_path / "job.sql").write_text(sql)
    command = ["rollback", "--to-epoch", "1", "--sql", str(tmp_path / "job.sql")]
    command += ["--state-dir", str(tmp_path / "state"), "--name", job.name]

    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "out cannot retract committed output, such as messages in Kafka" in refused.stderr
    assert "--accept-duplicates" in refused.stderr
    assert StateBackend(job.store, JobName(job.name)).rollbacks() == ()

    accepted = CliRunner().invoke(app, [*command, "--accept-duplicates"])
    assert accepted.exit_code == 0, accepted.stderr
    job.run()
    found = [json.loads(each.value or b"")["id"] for each in kafka_broker.read(topic)]
    assert sorted(found) == sorted([*range(30), *range(10, 20)])
