"""Session windows return Spark's batch answer, however the input is split into epochs."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.errors import InjectedFault
from tests.engine.harness import (
    Job,
    Leg,
    batch,
    random_legs,
    sink_table,
    sorted_rows,
    source_table,
    state_files,
    timestamp,
    types,
    write_lines,
)

ROWS = 150
COLUMNS = "at TIMESTAMP, word TEXT, value INT"
QUERY = (
    "SELECT {window} AS w{keys}, count(*) AS n, sum(value) AS total, max(value) AS most,"
    " percentile(value, 0.5) AS middle FROM events GROUP BY {window}{keys}"
)


def events(seed: int, gap: float) -> list[dict[str, object]]:
    """Rows up to four seconds out of order, with pauses of about the gap, some exactly of it."""
    rng = random.Random(seed)
    start = datetime(1970, 1, 1) - timedelta(seconds=60)
    pauses = [*[0, 0.1, 0.5, 1, 1, gap, gap] * 4, gap + 0.000001, 2 * gap]
    rows: list[tuple[datetime, dict[str, object]]] = []
    at = start
    for _ in range(ROWS):
        at += timedelta(seconds=rng.choice(pauses))
        row: dict[str, object] = {
            "at": timestamp(at),
            "word": rng.choice([None, "ant", "bee", "cat"]),
            "value": rng.choice([None, 1, 2, 3, 5, 8]),
        }
        rows.append((at + timedelta(seconds=4 * rng.random()), row))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def over(folder: Path, path: Path, gap: str, keys: str, delay: str = "5 seconds") -> str:
    window = f"session(INTERVAL '{gap}')"
    return (
        source_table(path, COLUMNS, delay=delay)
        + sink_table(folder / "out", name="out")
        + f"INSERT INTO out {QUERY.format(window=window, keys=keys)};\n"
    )


@pytest.mark.parametrize(
    ("seed", "keys", "gap", "parallelism"),
    [
        (1, ", word", 5, [1, 3, 2]),
        pytest.param(2, "", 2, [2, 3, 1], marks=pytest.mark.long),
        pytest.param(3, ", word, value", 8, [3], marks=pytest.mark.long),
    ],
)
def test_session_windows_return_the_batch_answer(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    keys: str,
    gap: int,
    parallelism: list[int],
) -> None:
    path = write_lines(tmp_path / "events.json", events(seed, gap))
    job = Job(spark, tmp_path, over(tmp_path, path, f"{gap} seconds", keys))
    job.run(random_legs(seed, ROWS, 5, parallelism))
    assert not any(count for each in job.reports for count in each.counts.late_rows.values())
    theirs = QUERY.format(window=f"session_window(at, '{gap} seconds')", keys=keys)
    expected = batch(spark, path, COLUMNS, theirs)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert types(found) == types(expected)
    assert sorted_rows(found) == sorted_rows(expected)


def row(second: int, word: str = "ant") -> dict[str, object]:
    return {
        "at": timestamp(datetime(2024, 1, 1) + timedelta(seconds=second)),
        "word": word,
        "value": 1,
    }


def sessions(spark: SparkSession, folder: Path) -> list[tuple[int, int, int]]:
    """Start and end in seconds, and the number of rows."""
    start = datetime(2024, 1, 1)
    return sorted(
        (
            int((each.w.start - start).total_seconds()),
            int((each.w.end - start).total_seconds()),
            each.n,
        )
        for each in spark.read.parquet(str(folder / "out")).collect()
    )


@pytest.mark.long
def test_an_open_session_is_carried_forward_and_its_state_stays_small(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row(second) for second in range(0, 64, 4)]
    path = write_lines(tmp_path / "events.json", [*rows, row(80)])
    kept: list[int] = []

    def count(engine: Engine) -> None:
        kept.append(sum(each.rows for each in state_files(engine)))

    job = Job(spark, tmp_path, over(tmp_path, path, "5 seconds", ", word", delay="0 seconds"))
    legs = [Leg(2, parallelism, 1) for parallelism in (2, 1, 3, 2, 1, 2, 3, 1)]
    job.run(legs, after_epoch=count)
    assert sessions(spark, tmp_path) == [(0, 65, 16), (80, 85, 1)]
    assert max(kept) <= 2


def test_a_row_is_late_if_a_session_of_only_that_row_would_have_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The watermark is at 20: a session of a row at 14 would have ended at 19, one of 15 ends at 20.
    first, second = [row(0), row(12), row(20)], [row(14), row(15), row(40)]
    path = write_lines(tmp_path / "events.json", [*first, *second])
    sql = over(tmp_path, path, "5 seconds", "", delay="0 seconds")
    job = Job(spark, tmp_path, sql)
    job.run([Leg(3, 2, 1), Leg(3, 3, 1)])
    assert [sum(each.counts.late_rows.values()) for each in job.reports] == [0, 1]
    # What the session of 12 has given stays as it is, though 15 would have belonged to it.
    assert sessions(spark, tmp_path) == [(0, 5, 1), (12, 17, 1), (15, 25, 2), (40, 45, 1)]


@pytest.mark.long
def test_a_window_over_sessions_contains_those_that_end_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Watermark, end of a session and end of a window are often the same instant here.
    seconds = [0, 5, 10, 20, 25, 26, 35, 45, 46, 60]
    path = write_lines(tmp_path / "events.json", [row(each) for each in seconds])
    sql = (
        source_table(path, COLUMNS, delay="0 seconds")
        + sink_table(tmp_path / "out", name="out")
        + "CREATE VIEW visits AS SELECT session(INTERVAL '5 seconds') AS w, word, count(*) AS n"
        " FROM events GROUP BY 1, word;\n"
        "INSERT INTO out SELECT tumble(INTERVAL '10 seconds') AS t, count(*) AS visits,"
        " sum(n) AS total FROM visits GROUP BY 1;\n"
    )
    job = Job(spark, tmp_path, sql)
    job.run([Leg(1, 2, 10)])
    assert not any(count for each in job.reports for count in each.counts.late_rows.values())
    expected = batch(
        spark,
        path,
        COLUMNS,
        "SELECT window(w.end - INTERVAL '0.000001' SECOND, '10 seconds') AS t, count(*) AS visits,"
        " sum(n) AS total FROM (SELECT session_window(at, '5 seconds') AS w, word, count(*) AS n"
        " FROM events GROUP BY 1, word) GROUP BY 1",
    )
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted_rows(found) == sorted_rows(expected)


@pytest.mark.long  # The SQL cases with sessions crash, too.
@pytest.mark.parametrize("point", ["state.written", "manifest.published"])
def test_sessions_survive_a_crash(spark: SparkSession, tmp_path: Path, point: str) -> None:
    path = write_lines(tmp_path / "events.json", events(5, 5))
    job = Job(spark, tmp_path, over(tmp_path, path, "5 seconds", ", word"))
    job.settings = {"faults": f"{point}@3=raise"}
    with pytest.raises(InjectedFault):
        job.run([Leg(40, 2, epochs=4)])
    job.run([Leg(25, 3, epochs=2)])
    theirs = QUERY.format(window="session_window(at, '5 seconds')", keys=", word")
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted_rows(found) == sorted_rows(batch(spark, path, COLUMNS, theirs))


@pytest.mark.long
def test_compaction_keeps_the_sessions_and_the_panes(spark: SparkSession, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.json", events(4, 5))
    hop = "hop(INTERVAL '20 seconds', INTERVAL '50 seconds')"
    sql = (
        over(tmp_path, path, "5 seconds", ", word", delay="1 minute")
        + sink_table(tmp_path / "hops", name="hops")
        + f"INSERT INTO hops {QUERY.format(window=hop, keys=', word')};\n"
    )
    compacted: set[str] = set()

    def settle(engine: Engine) -> None:
        running = engine.compaction._compactor.running
        if running is not None:
            running.written.result(60)
            compacted.add(running.operator)

    job = Job(spark, tmp_path, sql, settings={"checkpoint.compact_files": "2"})
    job.run([Leg(10, 2, epochs=16)], after_epoch=settle)
    assert len(compacted) == 2
    for name, window in (
        ("out", "session_window(at, '5 seconds')"),
        ("hops", "window(at, '50 seconds', '20 seconds')"),
    ):
        expected = batch(spark, path, COLUMNS, QUERY.format(window=window, keys=", word"))
        found = spark.read.parquet(str(tmp_path / name))
        assert sorted_rows(found) == sorted_rows(expected), name
