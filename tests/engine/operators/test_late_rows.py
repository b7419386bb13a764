"""Watermarks: whether a row is late is decided at the start of an epoch, per window, and counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import (
    Job,
    Leg,
    random_legs,
    sink_table,
    source_table,
    timestamp,
    write_lines,
)

WIDTH, DELAY = 10_000_000, 5_000_000
EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

Row = tuple[int | None, str]
"""Event time in microseconds since 1970, and a key."""


@dataclass
class Expected:
    """What epochs over these rows must do."""

    late: list[int]
    out: list[int]
    windows: Counter[tuple[int, str]]


def expected_of(rows: Sequence[Row], sizes: Sequence[int]) -> Expected:
    """The rule in plain Python: a row is late if its window had closed when its epoch began."""
    expected = Expected([], [], Counter())
    watermark: int | None = None
    taken, emitted = 0, set[tuple[int, str]]()
    for size in sizes:
        late = 0
        part = rows[taken : taken + size]
        taken += size
        for at, key in part:
            if at is None:
                continue
            start = at // WIDTH * WIDTH
            if watermark is not None and start + WIDTH <= watermark:
                late += 1
            else:
                expected.windows[start, key] += 1
        highest = max((at for at, _ in part if at is not None), default=None)
        if highest is not None:
            watermark = max(highest - DELAY, watermark or highest - DELAY)
        is_last = taken >= len(rows)
        closed = {
            group
            for group in expected.windows
            if is_last or (watermark is not None and group[0] + WIDTH <= watermark)
        }
        expected.late.append(late)
        expected.out.append(len(closed - emitted))
        emitted |= closed
    return expected


def check(spark: SparkSession, folder: Path, rows: Sequence[Row], legs: Sequence[Leg]) -> Expected:
    """Run the rows through these epochs; what comes out must be what the rule says."""
    path = write_lines(
        folder / "events.json",
        (
            {"at": None if at is None else timestamp(EPOCH + at * MICROSECOND), "key": key}
            for at, key in rows
        ),
    )
    sql = source_table(path, "at TIMESTAMP, key TEXT") + sink_table(folder / "out", name="out")
    sql += (
        "INSERT INTO out SELECT tumble(INTERVAL '10 seconds') AS w, key, count(*) AS n"
        " FROM events GROUP BY w, key"
    )
    job = Job(spark, folder, sql)
    job.run(legs)
    expected = expected_of(rows, [each.rows for each in legs])
    assert [sum(each.counts.late_rows.values()) for each in job.reports] == expected.late
    assert [sum(each.counts.rows_out.values()) for each in job.reports] == expected.out
    found = spark.read.parquet(str(folder / "out")).selectExpr(
        "unix_micros(w.start) AS start", "unix_micros(w.end) AS end", "key", "n"
    )
    assert sorted(tuple(each) for each in found.collect()) == sorted(
        (start, start + WIDTH, key, n) for (start, key), n in expected.windows.items()
    )
    return expected


@pytest.mark.parametrize(("seed", "parallelism"), [(11, 1), (12, 2)])
def test_exactly_the_rows_of_windows_closed_at_the_start_of_the_epoch_are_dropped(
    spark: SparkSession, tmp_path: Path, seed: int, parallelism: int
) -> None:
    rng = random.Random(seed)
    start = -120_000_000  # two minutes before 1970, so that the stream passes over it
    rows: list[Row] = [
        (
            None
            if rng.random() < 0.1
            else start + number * 1_500_000 - rng.randrange(0, 40_000_000, 250_000),
            rng.choice("ab"),
        )
        for number in range(120)
    ]
    expected = check(spark, tmp_path, rows, random_legs(seed, len(rows), 4, [parallelism]))
    assert sum(expected.late) > 5
    assert expected.late[0] == 0


def test_rows_at_the_boundaries_of_windows_and_of_time_are_assigned_correctly(
    spark: SparkSession, tmp_path: Path
) -> None:
    far = (datetime(9999, 12, 31, 23, 59, 59, 999_999) - EPOCH) // MICROSECOND
    long_ago = (datetime(1, 1, 1) - EPOCH) // MICROSECOND
    first: list[Row] = [(long_ago, "a"), (-1, "a"), (0, "a"), (WIDTH - 1, "a"), (WIDTH, "a")]
    # The watermark then stands exactly on the edge of the first window after 1970.
    first.append((WIDTH + DELAY, "a"))
    second: list[Row] = [(WIDTH - 1, "late"), (WIDTH, "b"), (None, "b"), (far, "b"), (far, "c")]
    third: list[Row] = [(far - DELAY - WIDTH, "late"), (far - DELAY, "c"), (None, "c")]
    legs = [Leg(len(part), 2, epochs=1) for part in (first, second, third)]
    expected = check(spark, tmp_path, [*first, *second, *third], legs)
    assert expected.late == [0, 1, 1]


def test_rows_without_event_time_do_not_advance_the_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Row] = [(None, "a"), (None, "b"), (3, "a")]
    expected = check(spark, tmp_path, rows, [Leg(2, 2, epochs=1), Leg(1, 2, epochs=1)])
    assert expected.out == [0, 1]
