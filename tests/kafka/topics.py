"""Jobs that read topics of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from resurgence.clock import Clock
from resurgence.engine.epochs.engine import Engine, EpochReport
from resurgence.ids import OperatorId
from tests.engine.harness import Job, Leg, read_lines, sink_table
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_records import Record

COLUMNS = "id BIGINT NOT NULL, at TIMESTAMP NOT NULL"
SOURCE = OperatorId("source-events")
START = datetime(2024, 1, 1, tzinfo=UTC)
WINDOWS = (
    "INSERT INTO out SELECT window.start AS start, count(*) AS n FROM events"
    " GROUP BY tumble(INTERVAL '10 seconds')"
)


def event(number: int, second: float | None = None, partition: int = 0, **more: object) -> Record:
    """A record with an id, at a second of 2024."""
    at = START + timedelta(seconds=number if second is None else second)
    value = {"id": number, "at": at.replace(tzinfo=None).isoformat(), **more}
    return Record(json.dumps(value).encode(), partition=partition)


@dataclass
class TopicJob:
    """A job over a table `events` of topics, which writes a file."""

    spark: SparkSession
    broker: KafkaBroker
    folder: Path

    def job(
        self,
        topic: str,
        query: str = "INSERT INTO out SELECT id FROM events",
        *,
        columns: str = COLUMNS,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        name: str = "job",
    ) -> Job:
        given = {"topic": topic, "source.offset": "earliest", **(options or {})}
        if "bootstrap_servers" not in given:
            given["bootstrap_servers"] = self.broker.bootstrap
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items() if value)
        sql = (
            f"CREATE TABLE events ({columns}, WATERMARK FOR at AS at)"
            f" WITH (connector = 'kafka', type = 'source', {listed});\n"
        )
        sql += sink_table(self.folder / f"{name}.json", name="out", connector="single_file")
        settings = {"pipeline.epoch_interval": "0s"}
        return Job(self.spark, self.folder, sql + query, settings=settings, clock=clock, name=name)

    def rows(self, name: str = "job") -> list[dict[str, object]]:
        path = self.folder / f"{name}.json"
        return read_lines(path) if path.exists() else []

    def ids(self, name: str = "job") -> list[object]:
        return sorted(each["id"] for each in self.rows(name))  # type: ignore[type-var]

    def add_partitions(self, topic: str, total: int) -> None:
        admin = self.broker.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Move the start of a log."""
        admin = self.broker.admin()
        place = TopicPartition(topic, partition, before)
        (future,) = admin.delete_records([place]).values()
        future.result(30)


def drained(engine: Engine) -> list[EpochReport]:
    """Run epochs until there is nothing to read."""
    reports = []
    while not engine.finished and (report := engine.run_epoch()) is not None:
        reports.append(report)
    return reports


def rows_in(reports: Iterable[EpochReport]) -> int:
    return sum(each.counts.rows_in.get(SOURCE, 0) for each in reports)


def late(reports: Iterable[EpochReport]) -> int:
    return sum(sum(each.counts.late_rows.values()) for each in reports)


def leg(rows: int) -> Leg:
    return Leg(rows=rows)
