"""ASOF joins in the engine: when a row is emitted, what is stored, and what is late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from tests.engine.harness import (
    Job,
    Leg,
    read_lines,
    sink_table,
    source_table,
    state_files,
    timestamp,
    write_lines,
)

START = datetime(2024, 1, 1, tzinfo=UTC)
QUERY = (
    "INSERT INTO joined SELECT l.n, r.m FROM lefts l ASOF LEFT JOIN rights r"
    " ON l.k = r.k AND l.at >= r.at"
)


def at(seconds: float) -> str:
    return timestamp(START + timedelta(seconds=seconds))


def job_of(
    spark: SparkSession,
    folder: Path,
    lefts: list[tuple[float, int]],
    rights: list[tuple[float, int]],
    **settings: str,
) -> Job:
    """Rows are (seconds, number); a key is whether the number is odd."""
    sql = sink_table(folder / "out.json", name="joined", connector="single_file") + "".join(
        source_table(
            write_lines(
                folder / f"{name}.json",
                ({"at": at(second), "k": number % 2, column: number} for second, number in rows),
            ),
            f"at TIMESTAMP, k INT, {column} INT",
            name=name,
        )
        for name, column, rows in (("lefts", "n", lefts), ("rights", "m", rights))
    )
    return Job(spark, folder, sql + QUERY, settings=settings)


def pairs(folder: Path) -> list[tuple[object, object]]:
    found = [(each["n"], each.get("m")) for each in read_lines(folder / "out.json")]
    return sorted(found, key=str)


def test_a_row_waits_for_the_watermark_of_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark lags by five seconds: a row of second 10 goes out when both have passed 15."""
    lefts = [(10.0, 0), (20.0, 2), (30.0, 4), (40.0, 6)]
    rights = [(9.0, 100), (14.0, 102), (19.5, 104), (29.0, 106)]
    job, sent = job_of(spark, tmp_path, lefts, rights), list[int]()

    def note(engine: Engine) -> None:
        sent.append(sum(job.reports[-1].counts.rows_out.values()))

    job.run([Leg(rows=1, epochs=4)], note)
    assert sent[:4] == [0, 0, 1, 3]
    assert pairs(tmp_path) == [(0, 100), (2, 104), (4, 106), (6, 106)]


def test_rows_behind_the_watermark_are_late_on_both_sides(
    spark: SparkSession, tmp_path: Path
) -> None:
    lefts = [(60.0, 0), (30.0, 2), (90.0, 4), (200.0, 6)]
    rights = [(60.0, 100), (50.0, 102), (91.0, 104), (200.0, 106)]
    reports = job_of(spark, tmp_path, lefts, rights).run([Leg(rows=1, epochs=4)])
    assert sum(sum(each.counts.late_rows.values()) for each in reports) == 2
    assert pairs(tmp_path) == [(0, 100), (4, 100), (6, 106)]


@pytest.mark.long
def test_the_newest_row_of_each_key_before_the_watermark_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = 60
    rights = [(float(each), each) for each in range(count)]
    lefts = [(float(each), each) for each in range(0, count, 10)]
    job = job_of(
        spark, tmp_path, [*lefts, (1000.0, 1000)], rights, **{"checkpoint.compact_files": "2"}
    )
    held: list[int] = []

    def note(engine: Engine) -> None:
        held.append(sum(each.rows for each in state_files(engine)))

    job.run([Leg(rows=4, parallelism=2, epochs=8), Leg(rows=4, parallelism=1, epochs=5)], note)
    assert len(held) > 8
    assert max(held) <= 40, "those that wait, one of each key, and what is not merged yet"
    expected = [*((number, number) for _, number in lefts), (1000, 58)]
    assert pairs(tmp_path) == sorted(expected, key=str)
