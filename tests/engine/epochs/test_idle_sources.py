"""A source without rows holds back the watermark of the others until it is idle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.ids import OperatorId
from tests.engine.harness import Job, Leg, SetClock, sink_table, source_table, write_lines

COLUMNS = "(counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL, WATERMARK FOR timestamp)"


def table(name: str, rate: str, more: str = "") -> str:
    return (
        f"CREATE TABLE {name} {COLUMNS} WITH (connector = 'impulse', type = 'source',"
        f" event_rate = '{rate}', event_time_interval = '1 second',"
        f" start_time = '2024-01-01T00:00:00'{more});"
    )


@pytest.mark.parametrize("idle", [True, False])
def test_windows_close_without_a_source_that_is_idle(
    spark: SparkSession, tmp_path: Path, idle: bool
) -> None:
    """One source has a row a second; the other has none in the first hundred."""
    more = ", idle_timeout = '20 seconds'" if idle else ""
    plain = write_lines(tmp_path / "plain.json", [{"k": each} for each in range(1000)])
    sql = (
        source_table(plain, "k INT", name="plain", delay=None)
        + "CREATE TABLE nothing WITH (connector = 'blackhole');"
        + "INSERT INTO nothing SELECT k FROM plain;"
        + table("fast", "1")
        + table("slow", "0.01", f", message_count = '2'{more}")
        + sink_table(
            tmp_path / "out", name="output", connector="filesystem", more=", format = 'json'"
        )
        + "INSERT INTO output SELECT window.start, count(*) AS n FROM"
        " (SELECT timestamp FROM fast UNION ALL SELECT timestamp FROM slow)"
        " GROUP BY tumble(INTERVAL '10 seconds')"
    )
    clock = SetClock(datetime(2024, 1, 1, tzinfo=UTC))
    job = Job(spark, tmp_path, sql, clock=clock)
    engine = job.open(Leg(rows=100))
    given = []
    for _ in range(4):
        clock.at += timedelta(seconds=15)
        report = engine.run_epoch()
        assert report is not None
        given.append(report.counts.rows_out[OperatorId("sink-output")])
    # The third epoch finds it idle; it then keeps up with the other, one epoch behind.
    assert given == ([0, 0, 2, 2] if idle else [0, 0, 0, 0])
    # A new engine goes on from there, and what comes late then is late.
    engine = job.open(Leg(rows=100))
    clock.at += timedelta(seconds=60)
    report = engine.run_epoch()
    assert report is not None
    assert sum(report.counts.late_rows.values()) == (1 if idle else 0)
