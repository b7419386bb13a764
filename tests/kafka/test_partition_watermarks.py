"""Each partition has its own watermark: skewed partitions make no rows late, and empty ones wait for
their idle timeout.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from resurgence.state.records import WATERMARKS
from tests.engine.harness import SetClock
from tests.kafka.topics import SOURCE, START, WINDOWS, TopicJob, drained, event, late, leg, rows_in

MICROS = 1_000_000
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def micros(second: float) -> int:
    return int((START.timestamp() + second) * MICROS)


def test_catching_up_on_skewed_partitions_drops_nothing_as_late(topics: TopicJob) -> None:
    """One partition has ten times as many rows as the others, over the same time."""
    topic = topics.broker.create_topic(partitions=3)
    rows = [event(each, each / 5, partition=0) for each in range(500)]
    rows += [event(1000 + each, each * 2, partition=1) for each in range(50)]
    rows += [event(2000 + each, each * 2, partition=2) for each in range(50)]
    topics.broker.produce(topic, rows)
    job = topics.job(topic, WINDOWS, options={"source.stop_at": "latest"})
    reports = job.open(leg(90))
    first = [each for each in (reports.run_epoch(), reports.run_epoch()) if each is not None]
    # After a restore, the watermarks of partitions continue.
    rest = drained(job.open(leg(90)))
    assert rows_in(first) + rows_in(rest) == 600
    assert late(first) + late(rest) == 0
    assert [each["n"] for each in topics.rows()] == [60] * 10
    # Of the large partition, 30 rows were read, and then 50, because the others had only 20 left.
    assert [each.watermark for each in first] == [micros(29 / 5), micros(79 / 5)]


def test_the_watermarks_of_partitions_are_restored(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(1, 100, partition=0), event(2, 10, partition=1)])
    job = topics.job(topic, WINDOWS)
    (report,) = drained(job.open())
    assert report.watermark == micros(10)
    table = report.checkpoint.operators[SOURCE].tables[WATERMARKS]
    assert table.values == {f"{topic}/0": micros(100), f"{topic}/1": micros(10)}
    topics.broker.produce(topic, [event(3, 70, partition=1)])
    (report,) = drained(job.open())
    assert report.watermark == micros(70)
    assert late([report]) == 0


def test_an_empty_partition_holds_back_the_watermark_with_a_warning(
    topics: TopicJob, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(1, 5), event(2, 50)])
    engine = topics.job(topic, WINDOWS).open()
    with caplog.at_level(logging.WARNING):
        reports = drained(engine)
        topics.broker.produce(topic, [event(3, 60)])
        reports += drained(engine)
    assert [each.watermark for each in reports] == [None, None]
    assert caplog.text.count(f"such as {topic}/1. Set idle_timeout") == 1
    # Its first row may be as old as any.
    topics.broker.produce(topic, [event(4, 0, partition=1)])
    (report,) = drained(engine)
    assert report.watermark == micros(0)
    assert late([report]) == 0


def test_an_idle_partition_does_not_hold_back_the_watermark(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(1, 5), event(2, 50)])
    clock = SetClock(NOON)
    options = {"idle_timeout": "30 seconds"}
    job = topics.job(topic, WINDOWS, options=options, clock=clock)
    engine = job.open()
    (report,) = drained(engine)
    assert report.watermark is None
    # Nothing arrives, but windows close when the empty partition is idle. Then both are.
    clock.at += timedelta(seconds=31)
    (report,) = drained(engine)
    assert report.watermark == micros(50)
    assert [each["n"] for each in topics.rows()] == [1]
    assert drained(engine) == []
    # A restored job does not repeat this, and a partition that was idle may be late.
    engine = job.open()
    assert drained(engine) == []
    topics.broker.produce(topic, [event(3, 0, partition=1), event(4, 70)])
    (report,) = drained(engine)
    assert report.watermark == micros(50)
    assert late([report]) == 1


def test_a_partition_with_unread_rows_is_not_idle(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    topics.broker.produce(topic, [event(each, 50 + each) for each in range(3)])
    topics.broker.produce(topic, [event(9, 1, partition=1)])
    clock = SetClock(NOON)
    options = {"idle_timeout": "30 seconds"}
    engine = topics.job(topic, WINDOWS, options=options, clock=clock).open(leg(1))
    first = engine.run_epoch()
    clock.at += timedelta(minutes=5)
    rest = drained(engine)
    assert first is not None
    assert first.watermark is None
    assert late(rest) == 0
    assert rows_in([first, *rest]) == 4
