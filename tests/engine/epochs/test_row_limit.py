"""LIMIT of a SELECT that is written to the terminal: exactly that many rows in total, even after a
crash, and then the job finishes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.errors import InjectedFault
from resurgence.faults import FaultPoint
from tests.engine.harness import Job, Leg, sink_table, source_table, write_lines

COLUMNS = "at TIMESTAMP, id INT"
ROWS = [{"at": f"2024-01-01T00:00:{number:02}", "id": number} for number in range(20)]
Captured = pytest.CaptureFixture[bytes]


def job_of(spark: SparkSession, folder: Path, query: str, **settings: str) -> Job:
    path = write_lines(folder / "events.json", ROWS)
    sql = source_table(path, COLUMNS) + sink_table(folder / "out", name="out")
    return Job(spark, folder, sql + query, settings=settings)


def shown(captured: Captured) -> list[int]:
    return [json.loads(line)["id"] for line in captured.readouterr().out.splitlines()]


@pytest.mark.parametrize("rows", [3, 100])
def test_a_job_finishes_when_its_limit_is_reached(
    spark: SparkSession, tmp_path: Path, capfdbinary: Captured, rows: int
) -> None:
    job = job_of(spark, tmp_path, "SELECT id FROM events WHERE id % 2 = 0 LIMIT 5")
    reports = job.run([Leg(rows=rows)])
    assert len(shown(capfdbinary)) == 5
    assert len(reports) == (3 if rows == 3 else 1)
    assert reports[-1].finished
    job.run()
    assert shown(capfdbinary) == []


def test_a_limit_that_is_not_reached_shows_all_rows(
    spark: SparkSession, tmp_path: Path, capfdbinary: Captured
) -> None:
    job_of(spark, tmp_path, "SELECT id FROM events LIMIT 50").run([Leg(rows=7)])
    assert sorted(shown(capfdbinary)) == list(range(20))


@pytest.mark.parametrize(
    "point",
    [
        each
        for each in FaultPoint
        if each.value.startswith(("sink", "manifest", "state"))
        and each is not FaultPoint.SINK_BETWEEN
    ],
)
def test_a_crash_does_not_exceed_the_limit(
    spark: SparkSession, tmp_path: Path, capfdbinary: Captured, point: FaultPoint
) -> None:
    job = job_of(
        spark,
        tmp_path,
        "SELECT id FROM events LIMIT 5",
        faults=f"{point.value}@2=raise",
    )
    with pytest.raises(InjectedFault):
        job.run([Leg(rows=3)])
    assert job.run([Leg(rows=3)])
    found = shown(capfdbinary)
    assert len(found) == len(set(found)) == 5


def test_other_sinks_continue_when_the_limit_of_the_terminal_is_reached(
    spark: SparkSession, tmp_path: Path, capfdbinary: Captured
) -> None:
    queries = "SELECT id FROM events LIMIT 2; SELECT -id AS id FROM events LIMIT 4; INSERT INTO out SELECT * FROM events"
    job_of(spark, tmp_path, queries).run([Leg(rows=3)])
    found = shown(capfdbinary)
    assert len(found) == 6
    assert len([each for each in found if each < 0]) >= 3
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(ROWS)


def test_a_raised_limit_shows_the_following_rows(
    spark: SparkSession, tmp_path: Path, capfdbinary: Captured
) -> None:
    job = job_of(spark, tmp_path, "SELECT id FROM events LIMIT 3")
    job.run([Leg(rows=3)])
    assert sorted(shown(capfdbinary)) == [0, 1, 2]
    job_of(spark, tmp_path, "SELECT id FROM events LIMIT 4").run([Leg(rows=3)])
    found = shown(capfdbinary)
    assert len(found) == 4
    assert set(found).isdisjoint({0, 1, 2})
