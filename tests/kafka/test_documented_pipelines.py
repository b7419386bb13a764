"""The pipelines in the pages of Kafka and of change data capture, run as they are written there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.documented import pipeline
from tests.engine.connectors.postgres_tables import Tables
from tests.engine.harness import Job, Leg, SetClock
from tests.kafka.topics import drained
from tests.servers.kafka import KafkaBroker

NOW = datetime(2024, 3, 1, 10, tzinfo=UTC)


def test_the_source_of_kafka_counts_what_is_in_a_topic(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kafka_jars: tuple[Path, ...],
    kafka_broker: KafkaBroker,
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = kafka_broker.create_topic()
    rides = [
        {"city": "ab"[n % 2], "at": f"2024-03-01T10:00:{n:02}", "fare": n} for n in range(0, 40, 2)
    ]
    kafka_broker.produce(topic, [(b"driver", json.dumps(each).encode()) for each in rides])
    sql = pipeline("kafka.md", 0, {"bootstrap_servers": kafka_broker.bootstrap, "topic": topic})
    assert Job(spark, tmp_path, sql).open().run_epoch() is not None
    found = duckdb.execute("SELECT city, second(start), rides FROM 'totals/*.parquet' ORDER BY ALL")
    assert found.fetchall() == [("a", start, 5) for start in (0, 10, 20)]


def test_the_sink_of_kafka_writes_messages_with_keys(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic, clock = kafka_broker.create_topic(), SetClock(NOW)
    sql = pipeline("kafka.md", 2, {"bootstrap_servers": kafka_broker.bootstrap, "topic": topic})
    engine = Job(spark, tmp_path, sql, clock=clock).open()
    clock.at += timedelta(seconds=1)
    report = engine.run_epoch()
    assert report is not None
    written = {each.key: json.loads(each.value or b"") for each in kafka_broker.read(topic)}
    assert sorted(each["counter"] for each in written.values()) == list(range(len(written)))
    assert len(written) >= 10
    assert all(key == str(each["counter"]).encode() for key, each in written.items())
    assert written[b"0"]["timestamp"] == "2024-03-01T10:00:00"


def test_changes_of_a_table_are_copied_by_its_key(
    spark: SparkSession,
    tmp_path: Path,
    kafka_jars: tuple[Path, ...],
    kafka_broker: KafkaBroker,
    postgres_url: str,
) -> None:
    def row(number: int, name: str) -> dict[str, object]:
        seen = "2024-03-01T10:00:00.123456Z"
        return {"id": number, "name": name, "spent": "12.50", "seen": seen}

    changes: list[tuple[int, dict[str, object] | None]] = [
        (1, {"before": None, "after": row(1, "a"), "op": "r"}),
        (2, {"before": None, "after": row(2, "b"), "op": "c"}),
        (1, {"before": None, "after": row(1, "c"), "op": "u"}),
        (2, {"before": {"id": 2}, "after": None, "op": "d"}),
        (2, None),
    ]
    topic = kafka_broker.create_topic()
    kafka_broker.produce(
        topic,
        [
            (json.dumps({"id": key}).encode(), change and json.dumps(change).encode())
            for key, change in changes
        ],
    )
    tables = Tables(postgres_url)
    tables.execute(
        "CREATE TABLE customers (id bigint PRIMARY KEY, name text, spent numeric(10,2),"
        " seen timestamptz)"
    )
    places = {
        "bootstrap_servers": kafka_broker.bootstrap,
        "topic": topic,
        "dsn": postgres_url,
    }
    sql, settings = pipeline("postgres.md", 1, places), {"pipeline.epoch_interval": "0s"}
    engine = Job(spark, tmp_path, sql, settings=settings).open(Leg(rows=2))
    assert engine.run_epoch() is not None
    assert tables.rows("SELECT id, name FROM customers ORDER BY id") == [(1, "a"), (2, "b")]
    assert len(drained(engine)) == 2
    seen = datetime(2024, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert tables.rows("TABLE customers") == [(1, "c", Decimal("12.50"), seen)]
