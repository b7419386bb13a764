"""The generator: the same rows for the same offset, at the configured rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.impulse import COLUMNS, ImpulseOptions, ImpulseSource
from resurgence.errors import UserError
from tests.engine.harness import Job, Leg, SetClock, read_lines, sink_table

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def source(**options: str) -> ImpulseSource:
    return ImpulseSource(ImpulseOptions.read(options), COLUMNS)


def read(
    spark: SparkSession, made: ImpulseSource, first: int, most: int, parallelism: int = 1
) -> list[tuple[int, int, int]]:
    """(counter, microseconds since the first row's time, subtask) of a range."""
    offset = {**made.first_offset(NOW, 3), "counter": first}
    planned = made.plan(offset, most, NOW)
    assert planned is not None
    rows = made.read(spark, planned, parallelism)
    micros = f"unix_micros(timestamp) - {offset['start_micros']} AS micros"
    return [tuple(each) for each in rows.selectExpr("counter", micros, "subtask").collect()]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 second", 1_000_000),
        ("250 milliseconds", 250_000),
        ("2.5 minutes", 150_000_000),
        ("5ms", 5_000),
        ("1500000", 1_500),
        ("1 hour", 3_600_000_000),
        ("3 microseconds", 3),
    ],
)
def test_the_interval_of_event_time_can_be_written_in_many_ways(text: str, micros: int) -> None:
    assert source(event_time_interval=text)._interval == micros


@pytest.mark.parametrize(
    "options",
    [
        {"event_time_interval": "soon"},
        {"event_rate": "0"},
        {"event_rate": "fast"},
        {"message_count": "-1"},
        {"message_count": "some"},
        {"message_count": "nan"},
        {"message_count": "inf"},
        {"event_rate": "nan"},
        {"start_time": "yesterday"},
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UserError, match=f"option '{next(iter(options))}'"):
        source(**options)


def test_a_range_has_the_same_rows_in_every_read(spark: SparkSession) -> None:
    made = source(event_time_interval="10ms")
    expected = [(number, number * 10_000, number % 3) for number in range(20, 24)]
    assert read(spark, made, 20, 4) == expected
    assert read(spark, source(event_time_interval="10ms"), 20, 4, parallelism=5) == expected
    many = read(spark, made, 0, 12_000, parallelism=2)
    assert sorted(many) == [(number, number * 10_000, number % 3) for number in range(12_000)]


def test_a_bounded_generator_ends_at_its_count() -> None:
    made = source(message_count="10")
    offset = made.first_offset(NOW, 1)
    first = made.plan(offset, 6, NOW)
    assert first is not None
    assert (first.rows, first.final) == (6, False)
    second = made.plan(first.end, 6, NOW)
    assert second is not None
    assert (second.rows, second.final, second.end["counter"]) == (4, True, 10)
    empty = source(message_count="0").plan(offset, 6, NOW)
    assert empty is not None
    assert (empty.rows, empty.final) == (0, True)


def test_a_rate_emits_the_rows_that_are_due_and_waits_for_the_rest() -> None:
    made = source(event_rate="4")
    offset = made.first_offset(NOW, 1)
    assert made.plan(offset, 100, NOW) is None
    assert made.plan(offset, 100, NOW + timedelta(milliseconds=249)) is None
    due = made.plan(offset, 100, NOW + timedelta(milliseconds=2600))
    assert due is not None
    assert (due.rows, due.final) == (10, False)
    assert made.plan(due.end, 100, NOW + timedelta(milliseconds=2600)) is None
    behind = made.plan(due.end, 3, NOW + timedelta(hours=1))
    assert behind is not None
    assert behind.rows == 3
    assert made._interval == 250_000


def test_event_time_starts_with_the_job_or_at_the_configured_instant() -> None:
    micros = int(NOW.timestamp()) * 1_000_000
    assert source().first_offset(NOW, 1)["start_micros"] == micros
    for text in ("2024-05-01T11:00:00", "2024-05-01T13:00:00+02:00", "2024-05-01T11:00:00Z"):
        offset = source(start_time=text).first_offset(NOW, 1)
        assert offset["start_micros"] == micros - 3_600_000_000
        assert offset["began_micros"] == micros


def test_a_job_at_a_rate_follows_the_clock_and_its_first_time_survives_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = SetClock(NOW)
    sql = (
        "CREATE TABLE ticks WITH (connector = 'impulse', event_rate = 2, message_count = 5);\n"
        + sink_table(tmp_path / "out.json", name="out", connector="single_file")
        + "INSERT INTO out SELECT counter, timestamp AS at, subtask FROM ticks"
    )
    job = Job(spark, tmp_path, sql, clock=clock)
    engine = job.open(Leg(parallelism=2))
    assert engine.run_epoch() is None
    clock.at += timedelta(seconds=1)
    assert engine.run_epoch() is not None
    assert engine.run_epoch() is None
    clock.at += timedelta(seconds=10)
    job.run([Leg(parallelism=3)])
    assert [each.epoch for each in job.reports] == [2]
    assert read_lines(tmp_path / "out.json") == [
        {"counter": 0, "at": "2024-05-01T12:00:00", "subtask": 0},
        {"counter": 1, "at": "2024-05-01T12:00:00.500", "subtask": 1},
        {"counter": 2, "at": "2024-05-01T12:00:01", "subtask": 0},
        {"counter": 3, "at": "2024-05-01T12:00:01.500", "subtask": 1},
        {"counter": 4, "at": "2024-05-01T12:00:02", "subtask": 0},
    ]
