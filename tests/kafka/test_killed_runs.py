"""`resurgence run` into Kafka, killed at every fault point of a sink."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.killed_run import run_killed
from tests.servers.kafka import KafkaBroker

ROWS = 3000


@pytest.mark.long  # All systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_every_point_writes_each_row_once(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    run_killed(
        tmp_path,
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000000', message_count = '{ROWS}');
        CREATE TABLE out WITH (
          connector = 'kafka', type = 'sink', bootstrap_servers = '{kafka_broker.bootstrap}',
          topic = '{topic}', 'sink.key_field' = 'counter', 'sink.marker_topic' = '{topic}-markers');
        INSERT INTO out SELECT counter FROM numbers;
        """,
    )
    for records in (kafka_broker.read(topic), kafka_broker.read_by_java(topic)):
        found = [json.loads(each.value or b"")["counter"] for each in records]
        assert sorted(found) == list(range(ROWS))
