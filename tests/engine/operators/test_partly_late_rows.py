"""Late rows that windows still take: hopping and cumulating windows that are open, and open sessions
around a row.

The rules are modelled in plain Python, epoch by epoch.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import (
    Job,
    Leg,
    random_legs,
    read_lines,
    sink_table,
    source_table,
    timestamp,
    write_lines,
)

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
DELAY, GAP = 5, 10
SLIDE, WIDTH = 5, 20
Row = tuple[int, str]
"""Seconds after noon, and a key."""


@dataclass
class Expected:
    """What epochs over these rows must do."""

    late: list[int] = field(default_factory=list)
    partly_late: list[int] = field(default_factory=list)
    lost: list[Row] = field(default_factory=list)
    windows: Counter[tuple[int, int, str]] = field(default_factory=Counter)


def epochs(rows: Sequence[Row], sizes: Sequence[int]) -> list[tuple[Sequence[Row], int | None]]:
    """The rows of each epoch, and the watermark when it begins."""
    found: list[tuple[Sequence[Row], int | None]] = []
    watermark: int | None = None
    taken = 0
    for size in sizes:
        part = rows[taken : taken + size]
        taken += size
        found.append((part, watermark))
        highest = max(at for at, _ in part) - DELAY
        watermark = highest if watermark is None else max(highest, watermark)
    return found


Span = tuple[int, int]
"""Start and end, in seconds after noon."""


def hops(at: int) -> list[Span]:
    starts = (each for each in range(-200, at + 1, SLIDE) if each <= at < each + WIDTH)
    return [(start, start + WIDTH) for start in starts]


def cumulations(at: int) -> list[Span]:
    start = at - at % WIDTH
    return [(start, end) for end in range(start + SLIDE, start + WIDTH + 1, SLIDE) if at < end]


def aligned(
    rows: Sequence[Row], sizes: Sequence[int], spans: Callable[[int], list[Span]]
) -> Expected:
    expected = Expected()
    for part, watermark in epochs(rows, sizes):
        late = partly = 0
        for at, key in part:
            found = spans(at)
            open_ones = [each for each in found if watermark is None or each[1] > watermark]
            late += not open_ones
            partly += 0 < len(open_ones) < len(found)
            if not open_ones:
                expected.lost.append((at, key))
            for start, end in open_ones:
                expected.windows[start, end, key] += 1
        expected.late.append(late)
        expected.partly_late.append(partly)
    return expected


def sessions(rows: Sequence[Row], sizes: Sequence[int]) -> Expected:
    """A late row counts only inside a session that is open when its epoch begins."""
    expected = Expected()
    live: dict[str, list[list[int]]] = defaultdict(list)
    """Of each key: the times of the rows of each session that is open."""
    for part, watermark in epochs(rows, sizes):
        if watermark is not None:
            for key, all_of_key in live.items():
                for times in [each for each in all_of_key if max(each) + GAP < watermark]:
                    expected.windows[min(times), max(times) + GAP, key] += len(times)
                    all_of_key.remove(times)
        late = 0
        before = {key: [list(each) for each in found] for key, found in live.items()}
        for at, key in part:
            if watermark is None or at + GAP >= watermark:
                touched = [each for each in live[key] if min(each) - GAP <= at <= max(each) + GAP]
                for each in touched:
                    live[key].remove(each)
                live[key].append([at, *(one for each in touched for one in each)])
                continue
            around = [each for each in before.get(key, []) if min(each) <= at <= max(each) + GAP]
            if around:
                (times,) = [each for each in live[key] if min(each) <= at <= max(each) + GAP]
                times.append(at)
            else:
                late += 1
                expected.lost.append((at, key))
        expected.late.append(late)
        expected.partly_late.append(0)
    for key, all_of_key in live.items():
        for times in all_of_key:
            expected.windows[min(times), max(times) + GAP, key] += len(times)
    return expected


def check(
    spark: SparkSession,
    folder: Path,
    window: str,
    rows: Sequence[Row],
    legs: Sequence[Leg],
    expected: Expected,
) -> None:
    path = write_lines(
        folder / "events.json",
        ({"at": timestamp(NOON + timedelta(seconds=at)), "key": key} for at, key in rows),
    )
    sql = (
        source_table(path, "at TIMESTAMP, key TEXT", delay=f"{DELAY} seconds")
        + sink_table(folder / "out.json", name="out", connector="single_file")
        + sink_table(folder / "late.json", name="late", connector="single_file")
        + "SET late_rows = 'late';"
        + "INSERT INTO out SELECT unix_seconds(window.start) AS s, unix_seconds(window.end) AS e,"
        f" key, count(*) AS n FROM events GROUP BY {window}, key"
    )
    job = Job(spark, folder, sql)
    job.run(legs)
    counts = [each.counts for each in job.reports]
    assert [sum(each.late_rows.values()) for each in counts] == expected.late
    assert [sum(each.partly_late_rows.values()) for each in counts] == expected.partly_late
    kept = [sum(each.kept_rows.values()) for each in counts]
    assert sum(kept) + sum(expected.late) == len(rows)
    noon = int(NOON.timestamp())
    found = {
        (int(str(each["s"])) - noon, int(str(each["e"])) - noon, each["key"]): each["n"]
        for each in read_lines(folder / "out.json")
    }
    assert found == dict(expected.windows)
    lost = [(each["at"], each["key"]) for each in read_lines(folder / "late.json")]
    assert sorted(lost) == sorted(
        (timestamp(NOON + timedelta(seconds=at)), key) for at, key in expected.lost
    )


def shuffled(seed: int) -> list[Row]:
    """Rows out of order by up to a minute."""
    rng = random.Random(seed)
    return [
        (number * 2 - rng.choice([0, 0, 0, rng.randrange(60)]), rng.choice("aab"))
        for number in range(150)
    ]


@pytest.mark.parametrize(
    ("seed", "parallelism"), [pytest.param(1, 1, marks=pytest.mark.long), (2, 3)]
)
@pytest.mark.parametrize(("window", "spans"), [("hop", hops), ("cumulate", cumulations)])
def test_a_row_that_is_late_for_some_windows_counts_in_the_open_ones(
    spark: SparkSession,
    tmp_path: Path,
    window: str,
    spans: Callable[[int], list[Span]],
    seed: int,
    parallelism: int,
) -> None:
    rows, legs = shuffled(seed), random_legs(seed, 150, 8, [parallelism])
    expected = aligned(rows, [each.rows for each in legs], spans)
    assert sum(expected.late) > 2
    assert sum(expected.partly_late) > 0
    call = f"{window}(INTERVAL '{SLIDE} seconds', INTERVAL '{WIDTH} seconds')"
    check(spark, tmp_path, call, rows, legs, expected)


@pytest.mark.parametrize("window", ["hop", "cumulate"])
def test_an_epoch_compiles_no_code_for_its_own_watermark(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    """Each epoch closes four windows."""
    path = write_lines(
        tmp_path / "events.json",
        ({"at": timestamp(NOON + timedelta(seconds=at))} for at in range(0, 240, 2)),
    )
    sql = (
        source_table(path, "at TIMESTAMP", delay="0 seconds")
        + sink_table(tmp_path / "out.json", name="out", connector="single_file")
        + "INSERT INTO out SELECT window.start, count(*) AS n FROM events"
        f" GROUP BY {window}(INTERVAL '{SLIDE} seconds', INTERVAL '{WIDTH} seconds')"
    )
    job = Job(spark, tmp_path, sql)
    assert spark._jvm is not None
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled: list[int] = []
    job.run([Leg(10, 1)], lambda _: compiled.append(metrics.METRIC_COMPILATION_TIME().getCount()))
    assert [sum(each.counts.rows_out.values()) for each in job.reports[5:9]] == [4] * 4
    assert len({*compiled[5:9]}) == 1, compiled


@pytest.mark.parametrize(
    ("seed", "parallelism"),
    [
        pytest.param(3, 1, marks=pytest.mark.long),
        (4, 3),
        pytest.param(5, 2, marks=pytest.mark.long),
    ],
)
def test_a_late_row_inside_an_open_session_is_kept(
    spark: SparkSession, tmp_path: Path, seed: int, parallelism: int
) -> None:
    rows, legs = shuffled(seed), random_legs(seed, 150, 8, [parallelism, 2])
    expected = sessions(rows, [each.rows for each in legs])
    # Without this rule, every row behind the watermark by more than the gap is late.
    behind = sum(
        watermark is not None and at + GAP < watermark
        for part, watermark in epochs(rows, [each.rows for each in legs])
        for at, _ in part
    )
    assert 0 < sum(expected.late) < behind
    check(spark, tmp_path, f"session(INTERVAL '{GAP} seconds')", rows, legs, expected)


def test_a_late_row_that_would_extend_a_session_backwards_stays_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The session of `a` is open from 20 to 50 when the watermark is at 35: 19 is before it.
    rows: list[Row] = [(20, "a"), (30, "a"), (40, "a"), (19, "a"), (21, "a"), (22, "b"), (60, "b")]
    legs = [Leg(3, 2, epochs=1), Leg(3, 2, epochs=1), Leg(1, 2, epochs=1)]
    expected = sessions(rows, [3, 3, 1])
    assert expected.lost == [(19, "a"), (22, "b")]
    assert expected.windows[20, 50, "a"] == 4
    check(spark, tmp_path, f"session(INTERVAL '{GAP} seconds')", rows, legs, expected)
