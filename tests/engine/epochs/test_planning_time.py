"""now() and related functions return the planning time of the epoch, the same in a replay; casts of
texts never read the clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.errors import SqlError
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
ROWS = [
    {"at": timestamp(NOON + timedelta(seconds=10 * number)), "k": number % 2, "t": "2024-05-01"}
    for number in range(12)
]
COLUMNS = "at TIMESTAMP, k INT, t TEXT"


def job(spark: SparkSession, folder: Path, query: str, columns: str = COLUMNS) -> Job:
    folder.mkdir(exist_ok=True)
    sql = source_table(write_lines(folder / "events.json", ROWS), columns, delay="0 seconds")
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    return Job(spark, folder, f"{sql}INSERT INTO out {query}", clock=SetClock(NOON))


def run(job: Job, damage_after: int | None = None) -> list[dict[str, object]]:
    """Three rows an epoch, one epoch an hour. After an epoch, its state may be lost: the job falls
    back to the checkpoint before, and replays the epoch a day later.
    """
    assert isinstance(job.clock, SetClock)
    damaged: frozenset[str] = frozenset()
    for epoch in range(1, 5):
        job.clock.at = NOON + timedelta(hours=epoch)
        engine = job.open(Leg(rows=3), damaged)
        assert engine.run_epoch() is not None
        if epoch == damage_after:
            damaged = frozenset(each.path for each in state_files(engine) if each.epoch == epoch)
            assert damaged
            job.clock.at += timedelta(days=1)
            replaying = job.open(Leg(rows=3), damaged)
            report = replaying.run_epoch()
            assert report is not None
            assert report.replayed
            damaged = frozenset()
    return sorted(read_lines(job.folder / "out.json"), key=repr)


def hour(number: int) -> str:
    return timestamp(NOON + timedelta(hours=number))


def test_now_is_when_the_epoch_of_a_row_was_planned(spark: SparkSession, tmp_path: Path) -> None:
    found = run(
        job(
            spark,
            tmp_path,
            "SELECT at, now() AS n, current_date AS d, unix_timestamp() AS s FROM events"
            " WHERE at < now() AND k = 0",
        )
    )
    expected = [
        {
            "at": each["at"],
            "n": hour(number // 3 + 1),
            "d": "2024-05-01",
            "s": int((NOON + timedelta(hours=number // 3 + 1)).timestamp()),
        }
        for number, each in enumerate(ROWS)
        if each["k"] == 0
    ]
    assert found == sorted(expected, key=repr)


def test_a_generated_column_may_be_the_planning_time(spark: SparkSession, tmp_path: Path) -> None:
    columns = f"{COLUMNS}, seen TIMESTAMP GENERATED ALWAYS AS (proctime()) STORED"
    found = run(
        job(
            spark,
            tmp_path,
            "SELECT seen, count(*) AS n FROM events GROUP BY tumble(INTERVAL '1 hour'), seen",
            columns,
        )
    )
    assert found == [{"seen": hour(epoch), "n": 3} for epoch in range(1, 5)]


WINDOWED = (
    "SELECT window.start AS s, count(*) AS n, max(now()) AS latest, now() AS closed FROM events"
    " GROUP BY tumble(INTERVAL '20 seconds')"
)


def test_a_window_has_the_time_of_the_epoch_that_closes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = run(job(spark, tmp_path, WINDOWED))
    assert [(each["latest"], each["closed"]) for each in found] == [
        (hour(1), hour(1)),
        (hour(2), hour(2)),
        (hour(2), hour(3)),
        (hour(3), hour(3)),
        (hour(4), hour(4)),
        (hour(4), hour(4)),
    ]


def test_a_replay_uses_the_planning_time_of_the_first_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = run(job(spark, tmp_path / "whole", WINDOWED))
    assert run(job(spark, tmp_path / "replayed", WINDOWED), damage_after=2) == whole


def test_an_aggregate_without_a_window_keeps_the_time_of_each_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = job(spark, tmp_path, "SELECT k, min(now()) AS first FROM events GROUP BY k")
    made.sql = made.sql.replace("type = 'sink'", "type = 'sink', format = 'debezium_json'")
    found = run(made)
    assert {str(each["after"]["first"]) for each in found} == {hour(1)}  # type: ignore[index]


def compiled(spark: SparkSession, folder: Path, query: str) -> Engine:
    return job(spark, folder, query).open()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k FROM events WHERE at > 'now'", "'now' as a TIMESTAMP reads the clock"),
        ("SELECT k FROM events WHERE at > concat('n', 'ow')", "'now' as a TIMESTAMP reads"),
        ("SELECT k FROM events WHERE at > '12:00'", "'12:00' has no date"),
        ("SELECT date_add('today', k) AS d FROM events", "'today' as a DATE reads the clock"),
        ("SELECT k FROM events WHERE at > t", "implicit cast of a text to TIMESTAMP"),
        ("SELECT k FROM events WHERE at > lower(t)", "implicit cast of a text to TIMESTAMP"),
        (
            "SELECT a.k FROM events a JOIN events b ON a.at = b.t",
            "implicit cast of a text to TIMESTAMP",
        ),
    ],
)
def test_a_cast_that_spark_adds_does_not_read_the_clock(
    spark: SparkSession, tmp_path: Path, query: str, message: str
) -> None:
    with pytest.raises(SqlError, match="line") as caught:
        compiled(spark, tmp_path, query)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "cast",
    [
        "CAST(t AS TIMESTAMP)",
        "to_timestamp(t)",
        "timestamp(t)",
        "date_trunc('second', t)",
        "transform(array(t), x -> CAST(x AS TIMESTAMP))[0]",
        "CAST(parse_json(concat('\"', t, '\"')) AS TIMESTAMP)",
    ],
)
def test_a_text_without_a_date_fails_in_a_cast(
    spark: SparkSession, tmp_path: Path, cast: str
) -> None:
    good, bad = (
        {"at": ROWS[0]["at"], "t": "2024-05-01 12:30:00"},
        {"at": ROWS[0]["at"], "t": "12:30"},
    )
    made = job(spark, tmp_path, f"SELECT {cast} AS x FROM events")
    write_lines(tmp_path / "events.json", [good, bad])
    engine = made.open(Leg(rows=1))
    assert engine.run_epoch() is not None
    assert read_lines(tmp_path / "out.json") == [{"x": "2024-05-01T12:30:00"}]
    with pytest.raises(Exception, match="time without a date"):
        engine.run_epoch()


@pytest.mark.parametrize("cast", ["TRY_CAST(t AS TIMESTAMP)", "try_to_timestamp(t)"])
def test_a_text_without_a_date_is_null_where_failures_are(
    spark: SparkSession, tmp_path: Path, cast: str
) -> None:
    texts = ["2024-05-01 12:30:00", "12:30", "now", "T12", "12:30:00-08:00", "2024"]
    made = job(spark, tmp_path, f"SELECT t, {cast} AS x FROM events")
    write_lines(tmp_path / "events.json", [{"at": ROWS[0]["at"], "t": each} for each in texts])
    made.run()
    found = {each["t"]: each["x"] for each in read_lines(tmp_path / "out.json")}
    assert found == {
        **dict.fromkeys(texts),
        "2024-05-01 12:30:00": "2024-05-01T12:30:00",
        "2024": "2024-01-01T00:00:00",
    }
