"""Processing-time windows: rows have the planning time of their epoch, windows close when an epoch
is planned after their end, and a replay assigns every row to the same window.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.ids import OperatorId
from tests.engine.harness import (
    Job,
    Leg,
    SetClock,
    read_lines,
    sink_table,
    source_table,
    state_files,
    timestamp,
    write_lines,
)

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
OUT = OperatorId("sink-output")
Row = dict[str, object]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def ticks(folder: Path, query: str, more: str = "") -> str:
    """A source that makes a row a second by the clock, without event time, for 100 seconds."""
    return (
        f"CREATE TABLE ticks (counter BIGINT{more}) WITH (connector = 'impulse', type = 'source',"
        " event_rate = '1', message_count = '100');"
        + sink_table(folder / "out.json", name="output", connector="single_file")
        + f"INSERT INTO output {query}"
    )


class TimedJob:
    """A job whose clock is set for each epoch."""

    def __init__(self, spark: SparkSession, folder: Path, sql: str) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = SetClock(NOON)
        self.job = Job(spark, folder, sql, clock=self.clock)
        self.engine: Engine = self.job.open()

    def tick(self, seconds: float, damage: bool = False) -> int | None:
        """Plan an epoch at an instant; how many rows went out, None if there was no epoch. If its
        state is lost then, a new engine replays it hours later.
        """
        self.clock.at = at(seconds)
        report = self.engine.run_epoch()
        if report is None:
            return None
        if damage:
            files = state_files(self.engine)
            lost = frozenset(each.path for each in files if each.epoch == report.epoch)
            assert lost
            self.clock.at = at(seconds) + timedelta(hours=5)
            self.engine = self.job.open(Leg(), lost)
            replayed = self.engine.run_epoch()
            assert replayed is not None
            assert replayed.replayed
            assert replayed.counts == report.counts
            self.clock.at = at(seconds)
            self.engine = self.job.open()
        return report.counts.rows_out[OUT]

    @property
    def output(self) -> list[Row]:
        return sorted(read_lines(self.job.folder / "out.json"), key=repr)


TUMBLING = (
    "SELECT window.start AS s, count(*) AS n, min(counter) AS lowest FROM ticks"
    " GROUP BY tumble(INTERVAL '10 seconds')"
)


def test_windows_close_by_the_clock_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    timed = TimedJob(
        spark, tmp_path, ticks(tmp_path, TUMBLING).replace("event_rate = '1'", "event_rate = '0.1'")
    )
    # One row in ten seconds: the first at 10, in the window from 10 to 20.
    assert timed.tick(10.5) == 0
    assert timed.tick(12) is None
    assert timed.tick(19.9) is None
    # The row of second 20 is read in the epoch that closes the window.
    assert timed.tick(20.2) == 1
    assert timed.tick(29.9) is None
    timed.engine = timed.job.open()
    assert timed.tick(30) == 1
    assert timed.output == [
        {"s": timestamp(at(10)), "n": 1, "lowest": 0},
        {"s": timestamp(at(20)), "n": 1, "lowest": 1},
    ]


def test_an_epoch_without_rows_is_planned_when_a_window_is_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = ticks(tmp_path, TUMBLING).replace("event_rate = '1'", "event_rate = '0.001'")
    timed = TimedJob(spark, tmp_path, sql)
    assert timed.tick(1000) == 0
    assert timed.tick(1009.9) is None
    report_before = timed.engine.epoch
    assert timed.tick(1010) == 1
    assert timed.engine.epoch == report_before + 1
    # Nothing is open any more.
    assert timed.tick(1500) is None


PLANNED = [3, 4, 8, 11, 12, 17, 26, 38, 39, 40, 55, 70, 71, 90, 99, 200]
"""When epochs are planned. The last one reads the end of the input."""


def epochs() -> list[tuple[int, int]]:
    """The rows of each epoch: (when it was planned, counter)."""
    counter, found = 0, []
    for seconds in PLANNED:
        found += [(seconds, each) for each in range(counter, min(seconds, 100))]
        counter = seconds
    return found


def tumbled() -> list[Row]:
    windows = Counter(seconds // 10 * 10 for seconds, _ in epochs())
    return [{"s": timestamp(at(start)), "n": count} for start, count in windows.items()]


def hopped() -> list[Row]:
    windows = Counter(
        start
        for seconds, _ in epochs()
        for start in range(-20, 201, 5)
        if start <= seconds < start + 20
    )
    return [{"s": timestamp(at(start)), "n": count} for start, count in windows.items()]


def sessions() -> list[Row]:
    found: list[list[int]] = []
    for seconds, _ in epochs():
        if found and seconds - found[-1][-1] <= 6:
            found[-1].append(seconds)
        else:
            found.append([seconds])
    return [{"s": timestamp(at(each[0])), "n": len(each)} for each in found]


@pytest.mark.parametrize("damage", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("window", "model"),
    [
        ("tumble(INTERVAL '10 seconds')", tumbled),
        pytest.param(
            "hop(INTERVAL '5 seconds', INTERVAL '20 seconds')", hopped, marks=pytest.mark.long
        ),
        ("session(INTERVAL '6 seconds')", sessions),
    ],
)
def test_rows_are_in_the_windows_of_their_planning_times(
    spark: SparkSession, tmp_path: Path, window: str, model: object, damage: bool
) -> None:
    query = f"SELECT window.start AS s, count(*) AS n FROM ticks GROUP BY {window}"
    timed = TimedJob(spark, tmp_path, ticks(tmp_path, query))
    for seconds in PLANNED:
        timed.tick(seconds, damage=damage and seconds in (4, 39))
    assert callable(model)
    assert timed.output == sorted(model(), key=repr)


def test_a_window_of_windows_follows_the_planning_time(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        "SELECT window.start AS s, sum(n) AS n FROM"
        f" ({TUMBLING}) GROUP BY tumble(INTERVAL '20 seconds')"
    )
    timed = TimedJob(spark, tmp_path, ticks(tmp_path, query))
    assert timed.tick(5) == 0
    assert timed.tick(15) == 0
    assert timed.tick(20) == 1
    assert timed.output == [{"s": timestamp(NOON), "n": 15}]


def test_a_proctime_column_is_the_time_of_its_row(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        "SELECT window.start AS s, max(proc) AS latest, count(*) AS n FROM ticks"
        " GROUP BY tumble(INTERVAL '10 seconds')"
    )
    timed = TimedJob(spark, tmp_path, ticks(tmp_path, query, ", proc AS PROCTIME()"))
    for seconds in (3, 7, 10):
        timed.tick(seconds)
    assert timed.output == [{"s": timestamp(NOON), "latest": timestamp(at(7)), "n": 7}]


def test_the_end_of_the_input_closes_all_windows(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "plain.json", [{"k": number % 3} for number in range(30)])
    sql = (
        source_table(rows, "k INT", delay=None)
        + sink_table(tmp_path / "out.json", name="output", connector="single_file")
        + "INSERT INTO output SELECT k, count(*) AS n FROM events"
        " GROUP BY tumble(INTERVAL '1 day'), k"
    )
    timed = TimedJob(spark, tmp_path, sql)
    assert timed.tick(0) == 3
    assert timed.engine.finished
    assert timed.output == [{"k": key, "n": 10} for key in range(3)]
