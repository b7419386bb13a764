"""The Kafka sink in a pipeline: messages, keys, upserts, and what it remembers of its epochs."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.checks import check_connectors
from resurgence.connectors.kafka import KafkaSink, KafkaSinkOptions
from resurgence.connectors.kafka.writing.open_lanes import MOST_BYTES
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.spark.errors import translate
from resurgence.errors import MessageRefused, ResurgenceError, SinkConflict, SqlError, UserError
from resurgence.graph.explain import explain_graph
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg, source_table, write_lines
from tests.servers.kafka import KafkaBroker

COLUMNS = "at TIMESTAMP NOT NULL, id BIGINT, name TEXT"
ROWS = 60


class Topics:
    """A topic for output, and one for markers, for one test."""

    def __init__(self, broker: KafkaBroker, partitions: int = 3) -> None:
        self.broker = broker
        self.name = broker.create_topic(partitions=partitions)
        self.markers = f"markers-{uuid.uuid4().hex[:8]}"

    def table(self, columns: str = "", **options: str) -> str:
        """CREATE TABLE out; `key_field` stands for `sink.key_field`, and so on."""
        chosen = {
            "connector": "kafka",
            "type": "sink",
            "bootstrap_servers": self.broker.bootstrap,
            "topic": self.name,
            "sink.marker_topic": self.markers,
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in chosen.items())
        return f"CREATE TABLE out {columns} WITH ({listed});\n"

    def messages(self) -> list[tuple[int, str | None, Any]]:
        """Partition, key and value of every committed message."""
        return [
            (
                each.partition,
                each.key.decode() if each.key is not None else None,
                json.loads(each.value) if each.value is not None else None,
            )
            for each in self.broker.read(self.name)
        ]

    def ids(self) -> list[int]:
        return sorted(value["id"] for _, _, value in self.messages())


@pytest.fixture
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker)


def events(folder: Path, rows: int = ROWS) -> str:
    """A source of rows, of which every seventh has the same name."""
    lines = [
        {
            "at": f"2024-03-01T10:{number // 60:02}:{number % 60:02}",
            "id": number,
            "name": f"n{number % 7}",
        }
        for number in range(rows)
    ]
    return source_table(write_lines(folder / "events.json", lines), COLUMNS)


@pytest.mark.parametrize("most_bytes", [0, MOST_BYTES], ids=["by tasks", "by the driver"])
def test_rows_of_all_epochs_are_read_once_by_both_clients(
    spark: SparkSession,
    tmp_path: Path,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
) -> None:
    monkeypatch.setattr("resurgence.connectors.kafka.writing.sink.MOST_BYTES", most_bytes)
    sql = events(tmp_path) + topics.table() + "INSERT INTO out SELECT id, at FROM events"
    Job(spark, tmp_path, sql).run([Leg(20, 2, 1), Leg(15, 3, 1)])
    assert topics.ids() == list(range(ROWS))
    assert topics.messages()[0][1] is None
    by_java = topics.broker.read_by_java(topics.name)
    assert sorted(json.loads(each.value or b"")["id"] for each in by_java) == list(range(ROWS))


def test_messages_of_a_key_are_in_one_partition_and_in_order(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = events(tmp_path) + topics.table(sink__key_field="name")
    sql += "INSERT INTO out SELECT id, name FROM events"
    Job(spark, tmp_path, sql).run([Leg(40, 3, 1)])
    partitions: dict[str | None, set[int]] = {}
    ids: dict[str | None, list[int]] = {}
    for partition, key, value in topics.messages():
        assert key == value["name"]
        partitions.setdefault(key, set()).add(partition)
        ids.setdefault(key, []).append(value["id"])
    assert len(ids) == 7
    assert all(len(each) == 1 for each in partitions.values())
    assert all(each == sorted(each) for each in ids.values())
    assert sum(map(len, ids.values())) == ROWS


def test_columns_choose_the_partition(spark: SparkSession, tmp_path: Path, topics: Topics) -> None:
    fields = {"sink__partition_field": "name", "sink__key_field": "id, name"}
    sql = events(tmp_path) + topics.table(**fields) + "INSERT INTO out SELECT id, name FROM events"
    Job(spark, tmp_path, sql).run()
    found = topics.messages()
    assert {json.loads(key or "")["id"] for _, key, _ in found} == set(range(ROWS))
    chosen: dict[str, set[int]] = {}
    for partition, _, value in found:
        chosen.setdefault(value["name"], set()).add(partition)
    assert all(len(each) == 1 for each in chosen.values())
    assert len(set.union(*chosen.values())) > 1


def test_a_changelog_with_a_primary_key_is_written_as_upserts_and_tombstones(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = events(tmp_path) + topics.table("(name TEXT PRIMARY KEY, n BIGINT)")
    sql += (
        "INSERT INTO out SELECT name, n FROM (SELECT name, count(*) AS n FROM events GROUP BY name)"
    )
    sql += " WHERE n < 8 OR name = 'n6'"
    Job(spark, tmp_path, sql).run([Leg(20, 2, 1), Leg(20, 2, 1)])
    table: dict[str, Any] = {}
    tombstones = 0
    for _, key, value in topics.messages():
        assert json.loads(key or "").keys() == {"name"}
        if value is None:
            tombstones += 1
            del table[key or ""]
        else:
            table[key or ""] = value
    assert [*table.values()] == [{"name": "n6", "n": 8}]
    assert tombstones == 6


def test_a_changelog_without_a_primary_key_requires_a_changelog_format(topics: Topics) -> None:
    select = "INSERT INTO out SELECT name, count(*) AS n FROM events GROUP BY name"
    with pytest.raises(SqlError) as refused:
        compile_pipeline(events(Path("/tmp")) + topics.table() + select, CONNECTORS, {})
    assert "Declare a PRIMARY KEY" in refused.value.hint
    assert "'debezium_json'" in refused.value.hint


def test_debezium_json_writes_changes_with_their_keys(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    columns = "(name TEXT PRIMARY KEY, n BIGINT)"
    sql = events(tmp_path) + topics.table(columns, format="debezium_json")
    sql += "INSERT INTO out SELECT name, count(*) AS n FROM events GROUP BY name"
    Job(spark, tmp_path, sql).run([Leg(30, 2, 1)])
    counts: dict[str | None, Any] = {}
    for _, key, value in topics.messages():
        assert value["before"] == counts.get(key)
        counts[key] = value["after"]
        assert json.loads(key or "") == {"name": value["after"]["name"]}
    assert sum(each["n"] for each in counts.values()) == ROWS


def test_an_older_copy_of_the_state_is_refused(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = events(tmp_path) + topics.table() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(10))
    engine.run_epoch()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    engine.run_epoch()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "backup").rename(tmp_path / "state")
    with pytest.raises(SinkConflict, match="holds epoch 2, but the newest epoch"):
        job.open(Leg(7))
    assert topics.ids() == list(range(20))


def test_a_missing_topic_of_markers_is_not_created_again(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = events(tmp_path) + topics.table() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    job.open(Leg(10)).run_epoch()
    topics.broker.delete_topic(topics.markers)
    check_connectors(
        compile_pipeline(sql, CONNECTORS, {}), f"file://{tmp_path}/state", JobName("job")
    )
    with pytest.raises(SinkConflict, match=f"topic '{topics.markers}' does not exist") as refused:
        job.open(Leg(10))
    assert f"kafka-topics.sh --create --topic {topics.markers} " in refused.value.hint
    assert "--replication-factor 1" in refused.value.hint


def test_a_rollback_writes_the_rows_again_and_skips_none(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = events(tmp_path) + topics.table() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(20))
    for _ in range(2):
        engine.run_epoch()
    backend, zombie = engine._backend, engine
    claim = backend.claim_generation(engine._clock.now())
    backend.record_rollback(claim, Epoch(1), engine._clock.now(), Epoch(2))
    job.run()
    assert topics.ids() == sorted([*range(ROWS), *range(20, 40)])
    with pytest.raises(ResurgenceError):
        zombie.run_epoch()
    assert len(topics.ids()) == ROWS + 20


def too_large(folder: Path, topics: Topics) -> str:
    sql = events(folder) + topics.table(sink__key_field="id")
    return sql + (
        "INSERT INTO out SELECT id, repeat('x', IF(id = 33, 1200000, 1)) AS text FROM events"
    )


def test_a_message_that_is_too_large_fails_the_epoch_before_it_is_sealed(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    with pytest.raises(Exception, match="a message with key 33 has 12000") as raised:
        Job(spark, tmp_path, too_large(tmp_path, topics)).run()
    assert isinstance(translate(raised.value), MessageRefused)
    assert topics.ids() == []


def test_a_message_that_is_too_large_can_become_a_dead_letter(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    sql = f"SET on_error = 'dead_letter';\n{too_large(tmp_path, topics)}"
    Job(spark, tmp_path, sql).run()
    assert topics.ids() == [each for each in range(ROWS) if each != 33]


def test_an_unknown_topic_is_reported_before_spark_starts(topics: Topics, tmp_path: Path) -> None:
    def check(**changes: str) -> None:
        sql = events(tmp_path) + topics.table(**changes) + "INSERT INTO out SELECT id FROM events"
        graph = compile_pipeline(sql, CONNECTORS, {})
        check_connectors(graph, f"file://{tmp_path}/state", JobName("job"))

    check()
    with pytest.raises(UserError, match="topic 'absent' does not exist"):
        check(topic="absent")


def test_explain_shows_the_guarantee(topics: Topics, tmp_path: Path) -> None:
    for mode, guarantee in (("exactly_once", "exactly once"), ("at_least_once", "at least once")):
        table = topics.table(**{"sink__commit_mode": mode})
        sql = events(tmp_path) + table + "INSERT INTO out SELECT id FROM events"
        explained = explain_graph(compile_pipeline(sql, CONNECTORS, {}), 2)
        assert f"guarantee    {guarantee}" in explained


def test_at_least_once_writes_all_rows(spark: SparkSession, tmp_path: Path, topics: Topics) -> None:
    table = topics.table(**{"sink__commit_mode": "at_least_once"})
    Job(spark, tmp_path, events(tmp_path) + table + "INSERT INTO out SELECT id FROM events").run()
    assert topics.ids() == list(range(ROWS))


def test_the_options_of_a_sink_are_read() -> None:
    options = KafkaSinkOptions.read({"bootstrap_servers": "b:9092", "topic": "t"})
    assert options.commit_mode == "exactly_once"
    assert not KafkaSink.retracts
