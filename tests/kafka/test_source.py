"""The Kafka source against a real broker: which records are read, and what happens to topics."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from resurgence.connectors.checks import require_no_more_input
from resurgence.connectors.kafka.reading.offsets import Positions
from resurgence.connectors.kafka.reading.source import KafkaSource
from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.engine.epochs.engine import Engine, EpochReport
from resurgence.errors import BadRecord, ConnectionLost, SourceError, SourceRangeGone, UserError
from resurgence.graph.specs.source import SourceSpec
from resurgence.sql import compile_pipeline
from resurgence.state.records import RecordPosition
from tests.engine.harness import Job, SetClock
from tests.kafka.lane_target import Killed
from tests.kafka.topics import COLUMNS, SOURCE, TopicJob, drained, event, leg, rows_in
from tests.servers.kafka import PASSWORDS, KafkaBroker
from tests.servers.kafka_records import Record

STOP = {"source.stop_at": "latest"}
FOR_EVER = {"retention.ms": "-1"}
"""For records with old timestamps."""
NOW = datetime(2024, 1, 1, tzinfo=UTC)


@contextmanager
def transaction(broker: KafkaBroker, topic: str, *ids: int) -> Iterator[Producer]:
    producer = Producer({**broker.settings, "transactional.id": f"{topic}-{ids}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for each in ids:
        producer.produce(topic, event(each).value)
    producer.flush(30)
    yield producer


# -------------------------------------------------------------------- which records


def test_a_bounded_source_reads_every_record_once_in_epochs_of_any_size(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=3)
    topics.broker.produce(topic, [event(each, partition=each % 3) for each in range(40)])
    job = topics.job(topic, options=STOP)
    reports = drained(job.open(leg(7)))[:2] + drained(job.open(leg(13)))
    assert topics.ids() == list(range(40))
    assert all(each.rows <= 13 for each in reports)
    assert job.open().finished


def test_gaps_of_transactions_do_not_count_and_open_ones_are_not_read(topics: TopicJob) -> None:
    topic = topics.broker.create_topic()
    with transaction(topics.broker, topic, 1, 2) as producer:
        producer.commit_transaction(30)
    with transaction(topics.broker, topic, 3, 4, 5) as producer:
        producer.abort_transaction(30)
    engine = topics.job(topic).open()
    uncommitted = topics.job(topic, options={"source.read_mode": "read_uncommitted"}, name="dirty")
    with transaction(topics.broker, topic, 6) as producer:
        topics.broker.produce(topic, [event(7)])
        before = drained(engine)
        assert topics.ids() == [1, 2]
        dirty = drained(uncommitted.open())
        producer.commit_transaction(30)
    # The broker writes the marker a moment after it has acknowledged the commit.
    after = _until_read(topics, engine, 7)
    assert topics.ids() == [1, 2, 6, 7]
    assert (rows_in(before), rows_in(after)) == (2, 2)
    # Two markers are before the open transaction.
    assert before[-1].epoch == 1
    assert topics.ids("dirty") == [1, 2, 3, 4, 5, 6, 7]
    assert rows_in(dirty) == 7


def test_metadata_of_records_and_tombstones_which_are_bad_records(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(config=FOR_EVER)
    topics.broker.produce(
        topic,
        [
            Record(event(1).value, b"key", (("a", b"1"), ("a", None)), 1_700_000_000_123),
            Record(None, b"key"),
            Record(event(2).value, None, (), 1_700_000_000_456),
        ],
    )
    columns = (
        f"{COLUMNS}, k BINARY METADATA FROM 'key', t TEXT METADATA FROM 'topic',"
        " p INT METADATA FROM 'partition', o BIGINT METADATA FROM 'offset',"
        " written TIMESTAMP METADATA FROM 'timestamp',"
        " h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers'"
    )
    query = "INSERT INTO out SELECT id, CAST(k AS STRING) AS k, t, p, o, written, h FROM events"
    options = {**STOP, "bad_data": "drop"}
    reports = drained(topics.job(topic, query, columns=columns, options=options).open())
    assert sum(each.counts.bad_rows[SOURCE] for each in reports) == 1
    first, second = topics.rows()
    headers = [{"key": "a", "value": "MQ=="}, {"key": "a", "value": None}]
    assert first == {
        "id": 1,
        "k": "key",
        "t": topic,
        "p": 0,
        "o": 0,
        "written": "2023-11-14T22:13:20.123",
        "h": headers,
    }
    assert second["k"] is None
    assert second["o"] == 2
    assert rows_in(reports) == 3


def test_bad_records_are_named_by_their_place_or_dropped_and_counted(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(
        topic,
        [event(1, partition=1), Record(b'{"id": "x"}', partition=1), Record(b"\xff", partition=0)],
    )
    engine = topics.job(topic, options=STOP).open()
    with pytest.raises(BadRecord) as error:
        drained(engine)
    assert error.value.position == f"topic '{topic}', partition 0, offset 0"
    assert "not UTF-8: byte ff" in error.value.message
    assert "bad_data = 'dead_letter'" in error.value.hint
    reports = drained(topics.job(topic, options={**STOP, "bad_data": "drop"}, name="other").open())
    assert topics.ids("other") == [1]
    assert sum(each.counts.bad_rows[SOURCE] for each in reports) == 2
    assert rows_in(reports) == 3


def test_a_bad_record_is_explained_before_its_transaction_has_ended(topics: TopicJob) -> None:
    topic = topics.broker.create_topic()
    options = {"source.read_mode": "read_uncommitted"}
    source = make_source(_spec(topics.job(topic, options=options)))
    first = source.first_offset(NOW, 1)
    with transaction(topics.broker, topic) as producer:
        producer.produce(topic, b'{"id": "x"}')
        producer.flush(30)
        planned = source.plan(first, 100, NOW)
        assert planned is not None
        error = source.bad_record(planned, RecordPosition(partition=f"{topic}/0", offset=0))
        producer.abort_transaction(30)
    assert "cannot be read again" not in error.message
    assert "'at' is NOT NULL" in error.message


def test_excluded_records_are_left_out(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(each, partition=each % 2) for each in range(6)])
    source = make_source(_spec(topics.job(topic)))
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None
    excluded = (
        RecordPosition(partition=f"{topic}/1", offset=2),
        RecordPosition(partition=f"{topic}/0", offset=0),
    )
    rows = source.read(topics.spark, planned.model_copy(update={"excluded": excluded}), 2)
    assert sorted(each.id for each in rows.collect()) == [1, 2, 3, 4]


def test_the_halves_of_a_range_are_the_range(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(each, partition=int(each > 1)) for each in range(5)])
    source = make_source(_spec(topics.job(topic)))
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None
    assert source.in_words(planned) == (
        f"{topic}/0 from offset 0 up to 2, {topic}/1 from offset 0 up to 3"
    )
    halves = source.halved(planned)
    assert halves is not None
    assert [each.rows for each in halves] == [2, 3]
    assert halves[0].start == planned.start
    assert halves[0].end == halves[1].start
    assert halves[1].end == planned.end
    again = source.halved(halves[1])
    assert again is not None
    assert source.in_words(again[0]) == f"{topic}/1 from offset 0 up to 1"
    assert source.halved(again[0]) is None
    ids = [each.id for each in source.read(topics.spark, again[1], 2).collect()]
    assert sorted(ids) == [3, 4]


def test_a_large_partition_is_split_over_several_tasks(
    topics: TopicJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resurgence.connectors.kafka.reading.source._LEAST_TASK_ROWS", 10)
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(each) for each in range(100)])
    topics.broker.produce(topic, [event(100, partition=1)])
    source = make_source(_spec(topics.job(topic)))
    planned = source.plan(source.first_offset(NOW, 1), 1000, NOW)
    assert planned is not None
    rows = source.read(topics.spark, planned, 4)
    assert rows.rdd.getNumPartitions() == 5
    assert sorted(each.id for each in rows.collect()) == list(range(101))


def test_changes_of_a_debezium_topic_are_counted_and_have_watermarks(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    row = {"id": 1, "at": "2024-01-01T00:00:10"}
    changes = [
        {"before": None, "after": row, "op": "c"},
        {"before": row, "after": {**row, "id": 2}, "op": "u"},
    ]
    topics.broker.produce(
        topic, [Record(json.dumps(each).encode(), partition=1) for each in changes]
    )
    query = "INSERT INTO out SELECT id FROM events"
    job = topics.job(topic, query, options={**STOP, "format": "debezium_json"})
    job.sql = job.sql.replace("type = 'sink'", "format = 'debezium_json', type = 'sink'")
    reports = drained(job.open())
    assert rows_in(reports) == 3


def test_an_epoch_is_bounded_by_bytes_once_the_size_of_records_is_known(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    large = "x" * 1000
    topics.broker.produce(topic, [event(each, partition=each % 2, s=large) for each in range(40)])
    job = topics.job(topic, options={**STOP, "source.epoch_bytes": "10KiB"})
    reports = drained(job.open())
    # At first, a record is assumed to have 1 KiB.
    assert [each.rows for each in reports] == [10, 9, 9, 9, 3]
    assert topics.ids() == list(range(40))


# -------------------------------------------------------------------- where a job starts


def test_every_kind_of_start(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(config=FOR_EVER)
    topics.broker.produce(
        topic, [Record(event(each).value, timestamp=1_700_000_000_000 + each) for each in range(5)]
    )
    _commit(topics.broker, "my-group", topic, 3)
    starts = {
        "earliest": [0, 1, 2, 3, 4],
        "latest": [],
        "group": [3, 4],
        "2023-11-14T22:13:20.002Z": [2, 3, 4],
        "1700000000004": [4],
        "1900000000000": [],
        '{"0": 1}': [1, 2, 3, 4],
        f'{{"{topic}": {{"0": 4}}}}': [4],
    }
    for start, expected in starts.items():
        options = {"source.offset": start, "source.group_id": "my-group"}
        source = make_source(_spec(topics.job(topic, options=options)))
        offset = Positions.of(source.first_offset(NOW, 1))
        (first,) = offset.next.values()
        assert [*range(first, 5)] == expected, start
    without = make_source(_spec(topics.job(topic, options={"source.offset": "group"})))
    assert [*Positions.of(without.first_offset(NOW, 1)).next.values()] == [0]
    for wrong, message in (('{"0": 6}', "holds offsets from 0 up to 5"), ('{"3": 0}', "not exist")):
        source = make_source(_spec(topics.job(topic, options={"source.offset": wrong})))
        with pytest.raises(UserError, match=message):
            source.first_offset(NOW, 1)


def test_the_offsets_of_the_group_are_committed_after_the_epoch(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(each, partition=each % 2) for each in range(5)])
    # The clock of the job is behind the system time: the age of records does not follow it.
    clock = SetClock(datetime.now(UTC) - timedelta(hours=1))
    job = topics.job(topic, name="lagging", clock=clock)
    engine = job.open(leg(4))
    group = "resurgence-lagging-events"
    report = engine.run_epoch()
    assert report is not None
    assert _committed(topics.broker, group, until=4) == {0: 2, 1: 2}
    lag = {each.partition: each for each in report.lag}
    assert {name: each.rows for name, each in lag.items()} == {f"{topic}/0": 1, f"{topic}/1": 0}
    assert lag[f"{topic}/1"].seconds == 0
    age = lag[f"{topic}/0"].seconds
    assert age is not None
    assert 0 < age < 300
    engine.run_epoch()
    assert _committed(topics.broker, group, until=5) == {0: 3, 1: 2}


@pytest.mark.parametrize("method", ["_commit", "committed"])
def test_the_offsets_of_the_group_are_committed_by_a_restore_too(
    topics: TopicJob, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(6)])
    job = topics.job(topic, name=f"crashed-{method.strip('_')}")
    group = f"resurgence-{job.name}-events"
    engine = job.open(leg(3))
    engine.run_epoch()
    with monkeypatch.context() as patch:
        patch.setattr(Engine if method == "_commit" else KafkaSource, method, _crash)
        with pytest.raises(Killed):
            engine.run_epoch()
    engine.close()
    assert _committed(topics.broker, group, until=3) == {0: 3}
    job.open(leg(3))
    assert _committed(topics.broker, group, until=6) == {0: 6}


def _crash(*_: object) -> None:
    raise Killed


def test_a_denied_group_commit_is_logged_once_and_does_not_fail_the_job(
    topics: TopicJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(3)])
    group = f"denied-{topic}"
    _deny_group(topics.broker, group)
    monkeypatch.setenv("KAFKA_PASSWORD", topics.broker.password)
    options = {**STOP, **_secure(topics.broker), "source.group_id": group}
    with caplog.at_level(logging.WARNING):
        drained(topics.job(topic, options=options).open(leg(1)))
    assert topics.ids() == [0, 1, 2]
    assert caplog.text.count(f"cannot commit the offsets of group '{group}'") == 1


# -------------------------------------------------------------------- topics that change


def test_new_partitions_are_found_and_read_from_their_first_record(topics: TopicJob) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(1)])
    engine = topics.job(topic, options={"source.offset": "latest"}).open()
    topics.broker.produce(topic, [event(2)])
    drained(engine)
    topics.add_partitions(topic, 3)
    _produce_when_ready(topics.broker, topic, event(3, partition=2))
    topics.broker.produce(topic, [event(4)])
    _until_read(topics, engine, 3)
    assert topics.ids() == [2, 3, 4]


def test_several_topics_and_patterns(topics: TopicJob) -> None:
    first, second = topics.broker.create_topic(), topics.broker.create_topic(partitions=2)
    topics.broker.produce(first, [event(1), event(2)])
    topics.broker.produce(second, [event(3, partition=0), event(4, partition=1)])
    drained(topics.job(f"{first}, {second}", options=STOP, name="listed").open())
    assert topics.ids("listed") == [1, 2, 3, 4]
    options = {"topic_pattern": f"({first}|{second}|{first}-later)"}
    engine = topics.job("", options=options, name="matched").open()
    drained(engine)
    later = topics.broker.create_topic(f"{first}-later")
    topics.broker.produce(later, [event(5)])
    topics.broker.produce(first, [event(6)])
    _until_read(topics, engine, 5, "matched")
    assert topics.ids("matched") == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_lost_records_fail_the_job_or_are_skipped_and_counted(
    topics: TopicJob, choice: str
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(10)])
    job = topics.job(topic, options={"on_data_loss": choice})
    assert job.open(leg(2)).run_epoch() is not None
    topics.delete_records(topic, 7)
    engine = job.open()
    if choice == "fail":
        with pytest.raises(
            SourceRangeGone, match="begins at offset 7, but offset 2 is due"
        ) as error:
            drained(engine)
        assert "on_data_loss = 'skip'" in error.value.hint
        return
    reports = drained(engine)
    assert topics.ids() == [0, 1, 7, 8, 9]
    assert [each.counts.skipped_rows.get(SOURCE) for each in reports] == [5, None]


def test_records_that_follow_the_stop_of_a_bounded_source_may_be_lost(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    short = [event(each) for each in range(2)]
    topics.broker.produce(topic, [*short, *(event(each, partition=1) for each in range(2, 12))])
    job = topics.job(topic, options=STOP)
    assert job.open(leg(4)).run_epoch() is not None
    topics.broker.produce(topic, [event(each) for each in range(50, 55)])
    topics.delete_records(topic, 6)
    reports = drained(job.open(leg(4)))
    assert topics.ids() == list(range(12))
    assert not any(each.counts.skipped_rows for each in reports)


def test_a_finished_bounded_job_is_not_told_of_records_that_expired_since(
    topics: TopicJob,
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(5)])
    job = topics.job(topic, options=STOP)
    (*_, last) = drained(job.open())
    topics.broker.produce(topic, [event(each) for each in range(50, 55)])
    topics.delete_records(topic, 8)
    assert job.open().finished
    manifest = last.checkpoint.manifest
    assert manifest is not None
    end = manifest.inputs[SOURCE].end
    graph = compile_pipeline(job.sql, CONNECTORS, {})
    require_no_more_input(graph, {SOURCE: end}, datetime.now(UTC))


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_a_topic_that_was_created_again_is_noticed(topics: TopicJob, choice: str) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(1), event(2)])
    job = topics.job(topic, options={"on_data_loss": choice})
    engine = job.open()
    drained(engine)
    topics.broker.delete_topic(topic)
    _create_again(topics.broker, topic)
    # As many as the job has read: without the id, they would seem to have been read.
    topics.broker.produce(topic, [event(3), event(4), event(5)])
    if choice == "fail":
        with pytest.raises(SourceRangeGone, match="was deleted and created again"):
            _until_read(topics, engine, 5)
        return
    try:
        _until_read(topics, engine, 5)
    except SourceError:
        # It was created between the plan and the read of an epoch, and the job retries.
        _until_read(topics, job.open(), 5)
    assert topics.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_a_topic_that_was_deleted_fails_the_job_or_is_skipped(
    topics: TopicJob, choice: str
) -> None:
    deleted, other = topics.broker.create_topic(), topics.broker.create_topic()
    topics.broker.produce(deleted, [event(each) for each in range(4)])
    job = topics.job(f"{deleted}, {other}", options={"on_data_loss": choice})
    assert job.open(leg(2)).run_epoch() is not None
    topics.broker.delete_topic(deleted)
    topics.broker.produce(other, [event(10)])
    engine = job.open()
    if choice == "fail":
        with pytest.raises(SourceRangeGone) as error:
            drained(engine)
        assert error.value.message == f"table 'events': topic '{deleted}' was deleted"
        assert "on_data_loss = 'skip'" in error.value.hint
        return
    drained(engine)
    assert topics.ids() == [0, 1, 10]


def test_a_replay_from_a_deleted_topic_fails_even_if_new_losses_are_skipped(
    topics: TopicJob,
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(1)])
    spec = _spec(topics.job(topic, options={"on_data_loss": "skip"}))
    source = make_source(spec)
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None
    topics.broker.delete_topic(topic)
    again = make_source(spec)
    assert not again.holds(planned)
    with pytest.raises(SourceRangeGone) as error:
        again.read(topics.spark, planned, 1)
    assert error.value.message == f"table 'events': topic '{topic}' was deleted"
    assert "on_data_loss does not apply" in error.value.hint


def test_a_replay_of_lost_records_fails_even_if_new_losses_are_skipped(topics: TopicJob) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(4)])
    spec = _spec(topics.job(topic, options={"on_data_loss": "skip"}))
    source = make_source(spec)
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None
    topics.delete_records(topic, 2)
    again = make_source(spec)
    assert not again.holds(planned)
    assert again.holds(planned.model_copy(update={"start": planned.end}))
    with pytest.raises(SourceRangeGone, match="holds offsets from 2 up to 4, but those from 0"):
        again.read(topics.spark, planned, 1)


@pytest.mark.parametrize("start", ["group", '{"0": 3}'])
def test_a_start_below_the_log_fails_the_job_or_is_skipped_and_counted(
    topics: TopicJob, start: str
) -> None:
    topic = topics.broker.create_topic()
    topics.broker.produce(topic, [event(each) for each in range(10)])
    topics.delete_records(topic, 7)
    _commit(topics.broker, f"group-{topic}", topic, 3)
    options = {"source.offset": start, "source.group_id": f"group-{topic}"}
    source = make_source(_spec(topics.job(topic, options={**options, "on_data_loss": "skip"})))
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None
    assert (planned.rows, planned.skipped_rows) == (0, 4)
    after = source.plan(planned.end, 100, NOW)
    assert after is not None
    assert source.in_words(after) == f"{topic}/0 from offset 7 up to 10"
    source = make_source(_spec(topics.job(topic, options=options)))
    with pytest.raises((SourceRangeGone, UserError)) as error:
        source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert "on_data_loss = 'skip'" in error.value.hint


def test_a_missing_topic_is_reported_before_the_job_starts(topics: TopicJob) -> None:
    with pytest.raises(UserError, match="topic 'nowhere' does not exist"):
        make_source(_spec(topics.job("nowhere"))).check()


def test_an_unreachable_broker_is_retried(
    topics: TopicJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resurgence.connectors.kafka.reading.cluster.REQUEST_SECONDS", 0.5)
    options = {"bootstrap_servers": "127.0.0.1:1"}
    with pytest.raises(ConnectionLost):
        make_source(_spec(topics.job("t", options=options))).first_offset(NOW, 1)


@pytest.mark.parametrize("login", [*PASSWORDS, "certificate"])
def test_a_source_and_a_sink_log_in_over_tls(
    topics: TopicJob, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    broker = topics.broker
    options = _secure(broker, login) if login in PASSWORDS else _certified(broker)
    topic = broker.create_topic()
    broker.produce(topic, [event(1), event(2)])
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS.get(login, ""))
    written = broker.create_topic()
    sink = {"connector": "kafka", "type": "sink", "topic": written, **options}
    sink["sink.marker_topic"] = f"{written}-markers"
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in sink.items())
    query = f"CREATE TABLE copy WITH ({listed});\nINSERT INTO copy SELECT id FROM events"
    drained(topics.job(topic, query, options={**STOP, **options}).open())
    assert [json.loads(each.value or b"") for each in broker.read(written)] == [
        {"id": 1},
        {"id": 2},
    ]


# -------------------------------------------------------------------- helpers


def _spec(job: Job) -> SourceSpec:
    return compile_pipeline(job.sql, CONNECTORS, {}).sources()[0]


def _secure(broker: KafkaBroker, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    return {
        "bootstrap_servers": broker.secure_bootstrap,
        "auth.type": "sasl",
        "auth.mechanism": mechanism,
        "auth.username": broker.username,
        "auth.password": "${env:KAFKA_PASSWORD}",
        "auth.ca_file": str(broker.ca_file),
    }


def _certified(broker: KafkaBroker) -> dict[str, str]:
    return {
        "bootstrap_servers": broker.certified_bootstrap,
        "auth.certificate_file": str(broker.client_file),
        "auth.ca_file": str(broker.ca_file),
    }


def _deny_group(broker: KafkaBroker, group: str) -> None:
    binding = AclBinding(
        ResourceType.GROUP,
        group,
        ResourcePatternType.LITERAL,
        f"User:{broker.username}",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    admin = broker.admin()
    for future in admin.create_acls([binding]).values():
        future.result(30)


def _commit(broker: KafkaBroker, group: str, topic: str, offset: int) -> None:
    places = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
    admin = broker.admin()
    admin.alter_consumer_group_offsets(places)[group].result(30)


def _committed(broker: KafkaBroker, group: str, until: int) -> dict[int, int]:
    """The offsets of a group, once they have this sum: they are committed in the background."""
    admin, give_up_at = broker.admin(), time.monotonic() + 10
    while True:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found: dict[int, int] = {}
        # A broker that has just become the coordinator of a group may still load its offsets.
        with contextlib.suppress(KafkaException):
            listed = answer[group].result(30).topic_partitions
            found = {each.partition: each.offset for each in listed}
        if sum(found.values()) == until or time.monotonic() > give_up_at:
            return dict(sorted(found.items()))
        time.sleep(0.05)


def _produce_when_ready(broker: KafkaBroker, topic: str, record: Record) -> None:
    """The broker learns of new partitions a moment later."""
    admin, give_up_at = broker.admin(), time.monotonic() + 10
    while len(admin.list_topics(topic, 10).topics[topic].partitions) <= record.partition:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    broker.produce(topic, [record])


def _create_again(broker: KafkaBroker, topic: str) -> None:
    give_up_at = time.monotonic() + 10
    while True:
        try:
            broker.create_topic(topic)
            return
        except Exception:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)


def _until_read(
    topics: TopicJob, engine: Engine, last: int, name: str = "job"
) -> list[EpochReport]:
    """Run epochs until the output has an id."""
    give_up_at, reports = time.monotonic() + 20, []
    while last not in topics.ids(name):
        assert time.monotonic() < give_up_at
        reports += drained(engine)
        time.sleep(0.1)
    return reports
