"""Hopping windows return Spark's batch answer, however the input is split into epochs."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import (
    Job,
    Leg,
    batch,
    random_legs,
    sink_table,
    sorted_rows,
    source_table,
    timestamp,
    types,
    write_lines,
)

ROWS = 150
COLUMNS = "at TIMESTAMP, word TEXT, value INT"
QUERY = (
    "SELECT {window} AS w{keys}, count(*) AS n, sum(value) AS total, avg(value) AS mean,"
    " count(DISTINCT value) AS kinds FROM events GROUP BY {window}{keys}"
)


def events(seed: int) -> list[dict[str, object]]:
    """Rows up to four seconds out of order."""
    rng = random.Random(seed)
    start = datetime(2024, 2, 28, 23, 59, 40)
    return [
        {
            "at": timestamp(start + timedelta(milliseconds=300 * number - rng.randrange(4000))),
            "word": rng.choice([None, "ant", "bee", "cat"]),
            "value": rng.choice([None, 1, 2, 3, 5, 8]),
        }
        for number in range(ROWS)
    ]


def hop(slide: str, width: str) -> str:
    return f"hop(INTERVAL '{slide}', INTERVAL '{width}')"


def over(folder: Path, path: Path, window: str, keys: str, delay: str = "5 seconds") -> str:
    return (
        source_table(path, COLUMNS, delay=delay)
        + sink_table(folder / "out", name="out")
        + f"INSERT INTO out {QUERY.format(window=window, keys=keys)};\n"
    )


@pytest.mark.parametrize(
    ("seed", "keys", "slide", "width", "parallelism"),
    [
        (1, ", word", "4 seconds", "10 seconds", [1, 3, 2]),
        pytest.param(2, "", "5 seconds", "10 seconds", [2, 1], marks=pytest.mark.long),
        pytest.param(3, ", word, value", "3 seconds", "7 seconds", [3], marks=pytest.mark.long),
    ],
)
def test_hopping_windows_return_the_batch_answer(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    keys: str,
    slide: str,
    width: str,
    parallelism: list[int],
) -> None:
    path = write_lines(tmp_path / "events.json", events(seed))
    job = Job(spark, tmp_path, over(tmp_path, path, hop(slide, width), keys))
    job.run(random_legs(seed, ROWS, 4, parallelism))
    assert not any(count for each in job.reports for count in each.counts.late_rows.values())
    theirs = QUERY.format(window=f"window(at, '{width}', '{slide}')", keys=keys)
    expected = batch(spark, path, COLUMNS, theirs)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert types(found) == types(expected)
    assert sorted_rows(found) == sorted_rows(expected)


def test_very_old_and_very_new_rows_are_in_their_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    instants = [
        "0001-01-03T00:00:01",
        "1582-10-15T00:00:00",
        "1969-12-31T23:59:54",
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00",
        "2024-03-31T01:30:00",
        "2024-10-27T01:30:00",
        "9999-12-30T23:59:59.999999",
    ]
    rows = [{"at": each, "word": "ant", "value": 1} for each in instants]
    path = write_lines(tmp_path / "events.json", rows)
    sql = over(tmp_path, path, hop("4 seconds", "10 seconds"), ", word", delay="0 seconds")
    Job(spark, tmp_path, sql).run([Leg(3, 2, 1), Leg(2, 1, 1)])
    theirs = QUERY.format(window="window(at, '10 seconds', '4 seconds')", keys=", word")
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted_rows(found) == sorted_rows(batch(spark, path, COLUMNS, theirs))


def test_a_late_row_counts_for_the_windows_that_are_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    def row(second: int) -> dict[str, object]:
        return {"at": f"2024-01-01T00:00:{second:02}", "word": "ant", "value": second}

    # At 20, of the windows 0-10, 4-14, 8-18, 12-22, ... the first three have closed.
    path = write_lines(tmp_path / "events.json", [row(3), row(20), row(13), row(11), row(21)])
    sql = (
        source_table(path, COLUMNS, delay="0 seconds")
        + sink_table(tmp_path / "out", name="out")
        + "INSERT INTO out SELECT minute(window.start) * 60 + second(window.start) AS s,"
        f" sum(value) AS total FROM events GROUP BY {hop('4 seconds', '10 seconds')};\n"
    )
    job = Job(spark, tmp_path, sql)
    job.run([Leg(2, 2, 1), Leg(3, 1, 1)])
    assert [sum(each.counts.late_rows.values()) for each in job.reports] == [0, 1]
    found = {row.s: row.total for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {3596: 3, 0: 3, 12: 54, 16: 41, 20: 41}
