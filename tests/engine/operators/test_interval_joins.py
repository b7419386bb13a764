"""Interval joins in the engine: which rows are stored, and for how long."""

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

MINUTES = 24
START = datetime(2024, 1, 1, tzinfo=UTC)


def events(folder: Path, name: str, delay: timedelta) -> str:
    """An event a minute, and its table."""
    rows = [
        {"at": timestamp(START + timedelta(minutes=each) + delay), "k": each % 2, name: each}
        for each in range(MINUTES)
    ]
    path = write_lines(folder / f"{name}.json", rows)
    return source_table(path, f"at TIMESTAMP, k INT, {name} INT", name=name)


@pytest.mark.long
def test_rows_expire_when_only_late_rows_could_match_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = (
        events(tmp_path, "lefts", timedelta(0))
        + events(tmp_path, "rights", timedelta(seconds=30))
        + sink_table(tmp_path / "out.json", name="joined", connector="single_file")
        + "INSERT INTO joined SELECT lefts, rights FROM lefts l JOIN rights r"
        " ON l.k = r.k AND r.at BETWEEN l.at AND l.at + INTERVAL '3 minutes'"
    )
    held: list[int] = []

    def note(engine: Engine) -> None:
        held.append(sum(each.rows for each in state_files(engine)))

    job = Job(spark, tmp_path, sql)
    reports = job.run([Leg(rows=2, parallelism=2, epochs=6)] * 2, note)
    # Three minutes of both streams, and what lies in the same files.
    assert len(held) == MINUTES // 2
    assert max(held) <= 16
    assert sum(sum(each.counts.late_rows.values()) for each in reports) == 0
    pairs = {(each["lefts"], each["rights"]) for each in read_lines(tmp_path / "out.json")}
    assert pairs == {
        (left, left + later)
        for left in range(MINUTES)
        for later in (0, 2)
        if left + later < MINUTES
    }
