"""Sources that Spark does not read, or reads too late: their watermarks are known anyway."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import Job, Leg, sink_table, sorted_rows, source_table, write_lines

ROWS = [{"at": f"2024-01-01T00:{minute:02}:00", "k": minute % 3} for minute in range(30)]
COLUMNS = "at TIMESTAMP, k INT"


def job(spark: SparkSession, folder: Path, query: str) -> Job:
    path = write_lines(folder / "in.json", ROWS)
    sql = (
        source_table(path, COLUMNS)
        + source_table(path, COLUMNS, name="others")
        + sink_table(folder / "out", name="results")
    )
    return Job(spark, folder, f"{sql} INSERT INTO results {query}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM events WHERE 1 = 0",
        "SELECT e.k FROM events e JOIN others o ON e.k = o.k AND e.at = o.at WHERE 1 = 0",
        "SELECT count(*) AS n FROM events WHERE k = 1 AND k = 2 GROUP BY tumble(INTERVAL '1 hour')",
    ],
)
def test_a_filter_that_no_row_can_pass(spark: SparkSession, tmp_path: Path, query: str) -> None:
    reports = job(spark, tmp_path, query).run([Leg(rows=10, epochs=2)])
    marks = [each.watermark for each in reports]
    assert marks == sorted(mark for mark in marks if mark is not None)
    assert sum(sum(each.counts.rows_out.values()) for each in reports) == 0
    assert sum(sum(each.counts.rows_in.values()) for each in reports) % len(ROWS) == 0


def test_a_window_waits_for_a_source_that_is_read_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The counts of a window are joined with events, windowed again, and joined with themselves."""
    counts = "SELECT tumble(INTERVAL '1 minute') AS w, k, count(*) AS n FROM others GROUP BY w, k"
    joined = (
        "SELECT tumble(INTERVAL '1 minute') AS w, c.k, count(*) AS m"
        f" FROM events e JOIN ({counts}) c ON e.k = c.k GROUP BY w, c.k"
    )
    query = f"SELECT a.n, b.m FROM ({counts}) a JOIN ({joined}) b ON a.w = b.w AND a.k = b.k"
    running = job(spark, tmp_path, query)
    reports = running.run([Leg(rows=10, epochs=2)])
    assert sum(sum(each.counts.rows_out.values()) for each in reports) > 0
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted_rows(found.selectExpr("sum(n)")) == [f"({found.count()},)"]
