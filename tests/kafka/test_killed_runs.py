"""`resurgence run` into Kafka and from Kafka to Kafka, killed at fault points, frozen and replaced."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.integration.conftest import DEADLINE_SECONDS, QUICK, Project, settings
from tests.kafka.topics import event
from tests.killed_run import run_killed
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_records import Record

ROWS = 3000
WINDOWED_ROWS = 1500
WIDTH = 10
WINDOWS = """
CREATE TABLE rides (
  id BIGINT NOT NULL, at TIMESTAMP NOT NULL, kind TEXT,
  WATERMARK FOR at AS at - INTERVAL '20 seconds'
) WITH (
  connector = 'kafka', type = 'source', bootstrap_servers = '{bootstrap}', topic = '{rides}',
  'source.offset' = 'earliest', 'source.stop_at' = 'latest'
);
CREATE TABLE totals (start TIMESTAMP, kind TEXT, n BIGINT, ids BIGINT) WITH (
  connector = 'kafka', type = 'sink', bootstrap_servers = '{bootstrap}', topic = '{totals}',
  'sink.key_field' = 'kind', 'sink.marker_topic' = '{totals}-markers'
);
INSERT INTO totals SELECT window.start, kind, n, ids FROM (
  SELECT tumble(INTERVAL '10 seconds') AS window, kind, count(*) AS n, sum(id) AS ids
  FROM rides GROUP BY window, kind);
"""
FIRST_EPOCH = 3
"""The first epoch that closes windows, and so writes messages."""


@dataclass
class Windows:
    """A topic of rides, the topic of their windows, and the batch answer."""

    broker: KafkaBroker
    sql: str
    rides: str
    totals: str
    expected: Counter[tuple[Any, ...]]

    def assert_exactly_once(self) -> None:
        for records in (self.broker.read(self.totals), self.broker.read_by_java(self.totals)):
            values = [json.loads(each.value or b"") for each in records]
            found = Counter(
                (each["start"], each["kind"], each["n"], each["ids"]) for each in values
            )
            assert found == self.expected


@pytest.fixture
def windows(kafka_jars: tuple[Path, ...], kafka_broker: KafkaBroker) -> Windows:
    rides, totals = (kafka_broker.create_topic(partitions=2) for _ in range(2))
    rng = random.Random(11)
    records = [
        event(
            number,
            number / 10 + rng.uniform(0, 15),
            partition=rng.randrange(2),
            kind=rng.choice("ab"),
        )
        for number in range(WINDOWED_ROWS)
    ]
    kafka_broker.produce(rides, records)
    sql = WINDOWS.format(bootstrap=kafka_broker.bootstrap, rides=rides, totals=totals)
    return Windows(kafka_broker, sql, rides, totals, batch_answer(records))


def batch_answer(records: list[Record]) -> Counter[tuple[Any, ...]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for each in records:
        ride = json.loads(each.value or b"")
        at = datetime.fromisoformat(ride["at"])
        start = at.replace(second=at.second // WIDTH * WIDTH, microsecond=0)
        groups.setdefault((start.isoformat(), ride["kind"]), []).append(ride["id"])
    return Counter((*key, len(ids), sum(ids)) for key, ids in groups.items())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.close()


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


@pytest.mark.parametrize(
    "points",
    [
        ("state.written", "sink.committing"),
        pytest.param(
            (
                "epoch.planned",
                "epoch.read",
                "state.partial",
                "sink.staged",
                "metadata.written",
                "manifest.published",
                "sink.committed",
                "restore.mid",
            ),
            marks=pytest.mark.long,
        ),
    ],
    ids=len,
)
@pytest.mark.timeout(600)
def test_killed_windows_from_topic_to_topic_are_the_batch_answer(
    windows: Windows, tmp_path: Path, points: tuple[str, ...]
) -> None:
    run_killed(tmp_path, windows.sql, points=points, first_epoch=FIRST_EPOCH, epoch_rows=120)
    windows.assert_exactly_once()
    # The process waits for its last commit before it ends.
    group = "resurgence-killed-rides"
    admin = windows.broker.admin()
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    places = answer.result(30).topic_partitions
    assert sum(each.offset for each in places if each.topic == windows.rides) == WINDOWED_ROWS


@pytest.mark.long  # The lanes alone, at every step: tests/kafka/test_lanes.py
@pytest.mark.timeout(600)
def test_a_zombie_that_wakes_up_in_its_commit_after_its_successor_has_ended_writes_nothing(
    windows: Windows, project: Project
) -> None:
    (project.folder / "rides.sql").write_text(windows.sql)
    # Nobody notices that it is frozen, so nobody kills it.
    patient = (*QUICK, "pipeline.heartbeat_timeout=1h", "pipeline.epoch_rows=120")
    fault = f"faults=sink.committing@{FIRST_EPOCH}=freeze"
    zombie = project.start(*settings(*patient, fault))
    worker = project.wait_for("worker_started")["pid"]
    fired = project.folder / ".resurgence/rides/faults" / f"sink.committing-{FIRST_EPOCH}-freeze"
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not fired.exists():
        assert time.monotonic() < give_up_at
        assert zombie.poll() is None
        time.sleep(0.05)
    os.kill(zombie.pid, signal.SIGSTOP)
    successor = project.run("--take-over", *settings(*patient))
    assert successor.returncode == 0, successor.stderr
    windows.assert_exactly_once()
    os.kill(worker, signal.SIGCONT)
    os.kill(zombie.pid, signal.SIGCONT)
    _, errors = zombie.communicate(timeout=DEADLINE_SECONDS)
    # It fails in its commit, restores, and finds the job finished.
    assert zombie.returncode == 0, errors
    failures = [(each["generation"], each["epoch"]) for each in project.events("failure")]
    assert (1, FIRST_EPOCH) in failures
    windows.assert_exactly_once()
