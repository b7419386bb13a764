"""A process takes over a job whose earlier process died in a transaction: it waits for no time-out."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.kafka import KafkaSink, KafkaSinkOptions
from resurgence.connectors.kafka.writing.lanes import LaneCommit, commit_lane
from resurgence.connectors.kafka.writing.markers import MarkerView
from resurgence.connectors.kafka.writing.parts import Part
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.access import store_access
from tests.engine.harness import Job, Leg, source_table, write_lines
from tests.kafka.lane_target import JOB, SINK, Killed, LaneTarget, at_call, covering
from tests.servers.kafka import KafkaBroker

TRANSACTION_SECONDS = 600.0
"""Of the process that dies. No test takes so long."""
PATIENCE_SECONDS = 20.0
"""How long markers are waited for here, so that a test fails soon."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = "resurgence.connectors.kafka.writing.marker_topic.STABLE_SECONDS"
    monkeypatch.setattr(waits, PATIENCE_SECONDS)


@pytest.fixture
def target(kafka_broker: KafkaBroker, tmp_path: Path) -> LaneTarget:
    return LaneTarget(kafka_broker, tmp_path)


@contextmanager
def without_waiting() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < PATIENCE_SECONDS


def kill() -> None:
    raise Killed


def sink_of(target: LaneTarget) -> KafkaSink:
    """The sink of a new process."""
    options = {"bootstrap_servers": target.broker.bootstrap, "topic": target.topic}
    options["sink.marker_topic"] = target.markers.name
    declared = SinkDeclaration(table=SINK, state_url=target.url, state_folder="out")
    return KafkaSink(KafkaSinkOptions.read(options), declared)


def staged_output(parts: tuple[Part, ...], size: int = 1) -> StagedOutput:
    files = tuple(StagedFile(path=each.path, rows=each.rows, bytes=size) for each in parts)
    return StagedOutput(rows=sum(each.rows for each in parts), files=files)


def fix(target: LaneTarget, epoch: int, parts: tuple[Part, ...]) -> None:
    content = {"files": [each.path for each in parts], "rows": [each.rows for each in parts]}
    sink_of(target)._log.fix(JOB, Epoch(epoch), content, covering(epoch))  # type: ignore[arg-type]


def die_in_transaction(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch, order: LaneCommit, lane: int
) -> None:
    """Leave a transaction open that has the rows and the marker of a part."""
    long = dataclasses.replace(order, transaction_seconds=TRANSACTION_SECONDS)
    with at_call(monkeypatch, "commit", 1, kill, after=False) as happened, pytest.raises(Killed):
        commit_lane(long, lane, store_access(target.url))
    assert happened


@pytest.mark.parametrize("dead_lane", [0, 2])
def test_the_open_transaction_of_a_dead_process_does_not_delay_what_a_sink_recalls(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch, dead_lane: int
) -> None:
    parts = target.stage(1, (["a"],), (["b"],), (["c"],))
    fix(target, 1, parts)
    die_in_transaction(target, monkeypatch, target.order(1, parts), dead_lane)
    sink = sink_of(target)
    with without_waiting():
        sink.take_over(JOB)
        assert sink.recall(JOB, [Epoch(1)]).newest == 1


@pytest.mark.parametrize("size", [1, 1_000_000_000], ids=["by the driver", "by tasks"])
def test_an_open_transaction_of_a_later_lane_does_not_delay_those_before_it(
    spark: SparkSession,
    target: LaneTarget,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    lanes = spark.sparkContext.defaultParallelism + 2
    parts = target.stage(1, *(([f"{lane}"],) for lane in range(lanes)))
    fix(target, 1, parts)
    die_in_transaction(target, monkeypatch, target.order(1, parts), lanes - 1)
    sink = sink_of(target)
    with without_waiting():
        sink.take_over(JOB)
        sink.commit(spark, JOB, Epoch(1), staged_output(parts, size), covering(1))
    assert sorted(map(int, target.visible())) == list(range(lanes))


def test_a_lane_that_is_staged_and_not_fixed_yet_is_fenced_too(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = target.stage(1, (["a"],), (["b"],))
    sink = sink_of(target)
    monkeypatch.setattr(sink._log, "staged", lambda _job: [each.path for each in parts])
    die_in_transaction(target, monkeypatch, target.order(1, parts), 1)
    with without_waiting():
        sink.take_over(JOB)
        assert sink.recall(JOB, []).newest == 0


def test_a_retraction_does_not_wait_for_the_transactions_that_it_ends(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = target.stage(1, (["a"],), (["b"],))
    fix(target, 1, parts)
    order = target.order(1, parts)
    die_in_transaction(target, monkeypatch, order, 1)
    sink = sink_of(target)
    with without_waiting():
        sink.retract(JOB, Epoch(0), Epoch(1))
    assert target.visible() == []
    assert {each.is_closed for each in read_markers(target).lanes.values()} == {True}


def read_markers(target: LaneTarget) -> MarkerView:
    return target.markers.read(JOB, SINK, MarkerView())


@pytest.mark.parametrize("committed", [0, 1])
def test_an_attempt_that_staged_nothing_completes_what_an_earlier_one_has_fixed(
    spark: SparkSession, target: LaneTarget, committed: int
) -> None:
    parts = target.stage(1, (["a"],), (["b"],))
    fix(target, 1, parts)
    order = target.order(1, parts)
    for lane in range(committed):
        commit_lane(order, lane, store_access(target.url))
    sink_of(target).commit(spark, JOB, Epoch(1), StagedOutput(), covering(1))
    assert sorted(target.visible()) == ["a", "b"]
    sink_of(target).commit(spark, JOB, Epoch(2), StagedOutput(), covering(2))
    assert sink_of(target).recall(JOB, []).newest == 1


def test_an_open_transaction_of_another_job_hides_no_marker_that_precedes_it(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.commit(target.order(1, target.stage(1, (["a"],))))
    other = target.order(1, target.stage(1, (["x"],)), job=JobIdentity("f6e5d4c3b2a1"))
    die_in_transaction(target, monkeypatch, other, 0)
    with without_waiting():
        known = read_markers(target)
        assert known.newest == 1
        target.commit(target.order(2, target.stage(2, (["b"],))))


def test_a_marker_that_another_job_hides_is_waited_for(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = target.order(1, target.stage(1, (["x"],)), job=JobIdentity("f6e5d4c3b2a1"))
    short = dataclasses.replace(other, transaction_seconds=3.0)
    with at_call(monkeypatch, "commit", 1, kill, after=False), pytest.raises(Killed):
        commit_lane(short, 0, store_access(target.url))
    target.commit(target.order(1, target.stage(1, (["a"],))))
    assert read_markers(target).newest == 1


@pytest.mark.parametrize("most_bytes", [0, 1 << 30], ids=["by tasks", "by the driver"])
def test_a_job_is_restored_although_its_last_process_left_a_transaction_open(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
) -> None:
    topic, markers = kafka_broker.create_topic(partitions=2), f"markers-{uuid.uuid4().hex[:8]}"
    rows = [{"at": f"2024-03-01T10:00:{number:02}", "id": number} for number in range(40)]
    sql = source_table(
        write_lines(tmp_path / "events.json", rows), "at TIMESTAMP NOT NULL, id BIGINT"
    )
    sql += (
        f"CREATE TABLE out WITH (connector = 'kafka', type = 'sink', topic = '{topic}',"
        f" bootstrap_servers = '{kafka_broker.bootstrap}', 'sink.marker_topic' = '{markers}');\n"
        "INSERT INTO out SELECT id FROM events"
    )
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(rows=20))
    engine.run_epoch()
    long = _with_long_transactions(KafkaSink._order)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaSink, "_order", long)
        with at_call(patch, "commit", 1, kill, after=False), pytest.raises(Killed):
            engine.run_epoch()
    assert len(kafka_broker.read(topic)) == 20
    monkeypatch.setattr("resurgence.connectors.kafka.writing.sink.MOST_BYTES", most_bytes)
    with without_waiting():
        job.run()
    found = [json.loads(each.value or b"")["id"] for each in kafka_broker.read(topic)]
    assert sorted(found) == list(range(40))


def _with_long_transactions(real: Callable[..., LaneCommit]) -> Callable[..., LaneCommit]:
    def order(*arguments: Any) -> LaneCommit:
        return dataclasses.replace(real(*arguments), transaction_seconds=TRANSACTION_SECONDS)

    return order
