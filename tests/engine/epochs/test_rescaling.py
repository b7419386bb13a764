"""State files contain only the key groups that they declare, and any parallelism can resume from
them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.operators.windows.window_operator import WindowOperator
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.state.key_groups import KEY_GROUPS, FileSlice, deal, owned_groups
from resurgence.state.records import StateFile
from tests.engine.harness import (
    Job,
    Leg,
    batch,
    sink_table,
    sorted_rows,
    source_table,
    state_files,
    write_lines,
)

COLUMNS = "at TIMESTAMP, word TEXT, number DECIMAL(9,1), value INT"
QUERY = (
    "SELECT {window} AS w, word, number, 'all' AS label, count(*) AS n, sum(value) AS total,"
    " avg(value) AS mean FROM events GROUP BY {window}, word, number, label"
)


def job_over(spark: SparkSession, folder: Path, rows: int, width: str) -> tuple[Job, Path, str]:
    rng = random.Random(rows)
    path = write_lines(
        folder / "events.json",
        (
            {
                "at": f"2024-01-01T00:{number // 60:02}:{number % 60:02}",
                "word": rng.choice([None, "ant", "bee", "cat", "dog", "eel"]),
                "number": rng.randrange(4) / 2,
                "value": number,
            }
            for number in range(rows)
        ),
    )
    sql = source_table(path, COLUMNS) + sink_table(folder / "out", name="out")
    sql += "INSERT INTO out " + QUERY.replace("{window}", f"tumble(INTERVAL '{width}')")
    return Job(spark, folder, sql), path, QUERY.replace("{window}", f"window(at, '{width}')")


def assert_batch_answer(job: Job, path: Path, query: str) -> None:
    found = job.spark.read.parquet(str(job.folder / "out"))
    assert sorted_rows(found) == sorted_rows(batch(job.spark, path, COLUMNS, query))


def assert_claims_hold(job: Job, files: Sequence[StateFile]) -> None:
    """Every row of a file is of a key group that the file claims."""
    paths = [str(job.folder / "state" / each.path) for each in files]
    found = (
        job.spark.read.parquet(*paths)
        .selectExpr("_metadata.file_name AS name", f"pmod(hash(bin, k0, k1), {KEY_GROUPS}) AS g")
        .distinct()
        .collect()
    )
    claims = {Path(each.path).name: each.key_groups for each in files}
    assert {row["name"] for row in found} == set(claims)
    assert not [row for row in found if not claims[row["name"]] >> row["g"] & 1]


def test_every_change_of_parallelism_returns_the_same_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, path, query = job_over(spark, tmp_path, 200, "1 hour")
    steps = [1, 3, 2, 8, 1]

    def check(engine: Engine) -> None:
        files = state_files(engine)
        if not files:
            return
        written = [each for each in files if each.epoch == engine.epoch]
        assert_claims_hold(job, written)
        dealt = deal(files, steps[engine.epoch - 1])
        for subtask, slices in enumerate(dealt):
            owned = owned_groups(subtask, len(dealt))
            assert all(each.file.key_groups & owned for each in slices)

    job.run([Leg(40, each, epochs=1) for each in steps], check)
    assert [each.epoch for each in job.reports] == [1, 2, 3, 4, 5]
    assert_batch_answer(job, path, query)


def test_a_subtask_loads_only_files_that_may_contain_its_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With enough input that Spark spreads it: then each file holds the groups of one subtask."""
    sql = (
        "CREATE TABLE ticks WITH (connector = 'impulse', message_count = 60000,"
        " event_time_interval = '1 millisecond', start_time = '2024-01-01T00:00:00');\n"
    )
    sql += sink_table(tmp_path / "out", name="out")
    sql += (
        "INSERT INTO out SELECT tumble(INTERVAL '1 minute') AS w, counter % 700 AS word,"
        " sum(counter) AS total FROM ticks GROUP BY w, word"
    )
    job = Job(spark, tmp_path, sql)
    for parallelism in (2, 4):
        assert job.open(Leg(20_000, parallelism)).run_epoch()
    plan = job.open(Leg(20_000, 8))._plan
    (load,) = [each for each in plan.operators.values() if "partials" in each.metadata.tables]
    files = load.metadata.tables["partials"].files
    assert [(each.epoch, each.subtask) for each in files] == [
        *((1, subtask) for subtask in range(2)),
        *((2, subtask) for subtask in range(4)),
    ]
    for each in files:
        assert each.key_groups == owned_groups(each.subtask, 2 * each.epoch)
    for subtask, slices in enumerate(load.subtasks["partials"]):
        assert [(each.file.epoch, each.file.subtask, each.partial) for each in slices] == [
            (1, subtask % 2, True),
            (2, subtask % 4, True),
        ]
    job.run([Leg(20_000, 3)])
    found = spark.read.parquet(str(tmp_path / "out")).select("word", "total")
    expected = spark.range(60_000).selectExpr("id % 700 AS word", "id")
    assert sorted_rows(found) == sorted_rows(expected.groupBy("word").sum("id"))


def stored_files(job: Job) -> dict[str, tuple[int, int]]:
    """Every state file there is, with its size and the instant of its last change."""
    state = job.folder / "state"
    return {
        str(each.relative_to(state)): (each.stat().st_size, each.stat().st_mtime_ns)
        for each in state.rglob("*.parquet")
    }


def assert_dealt_by_overlap(
    files: Sequence[StateFile], dealt: Sequence[Sequence[FileSlice]]
) -> None:
    """A subtask has the files whose groups overlap its own, and knows whether all of them do."""
    for subtask, slices in enumerate(dealt):
        owned = owned_groups(subtask, len(dealt))
        assert [each.file for each in slices] == [each for each in files if each.key_groups & owned]
        assert [each.partial for each in slices] == [
            each.file.key_groups | owned != owned for each in slices
        ]


def assert_each_row_read_once(job: Job, engine: Engine, files: Sequence[StateFile]) -> None:
    """What the subtasks read, all together, are the rows of the files; none has nothing to do."""
    operators = engine._pipeline.operators.values()
    (window,) = (each for each in operators if isinstance(each, WindowOperator))
    subtasks = window._table.read(job.spark, window.live, 0, END_OF_TIME)
    read = [each.rows.collect() for each in subtasks]
    assert all(read)
    paths = [str(job.folder / "state" / each.path) for each in files]
    stored = job.spark.read.parquet(*paths).collect()
    assert len(stored) == sum(each.rows for each in files)
    assert Counter(tuple(row) for rows in read for row in rows) == Counter(map(tuple, stored))
    readers = [{(row["bin"], row["k0"]) for row in rows} for rows in read]
    assert sum(map(len, readers)) == len(set().union(*readers))


def test_a_restore_at_another_parallelism_reads_what_overlaps_and_rewrites_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """From 1 to 8 to 3 to 2 subtasks, each time in the middle of a window that is open."""
    sql = (
        "CREATE TABLE ticks WITH (connector = 'impulse', message_count = 60000,"
        " event_time_interval = '1 millisecond', start_time = '2024-01-01T00:00:00');\n"
    )
    sql += sink_table(tmp_path / "out", name="out")
    sql += (
        "INSERT INTO out SELECT tumble(INTERVAL '30 seconds') AS w, counter % 700 AS word,"
        " count(*) AS n, sum(counter) AS total, min(counter) AS least, avg(counter) AS mean"
        " FROM ticks GROUP BY w, word"
    )
    job = Job(spark, tmp_path, sql)
    live: list[StateFile] = []
    for epoch, parallelism in enumerate([1, 8, 3, 2], start=1):
        before = stored_files(job)
        engine = job.open(Leg(12_000, parallelism))
        assert stored_files(job) == before
        if live:
            (load,) = [
                each for each in engine._plan.operators.values() if "partials" in each.subtasks
            ]
            assert list(load.metadata.tables["partials"].files) == live
            assert state_files(engine) == live
            assert_dealt_by_overlap(live, load.subtasks["partials"])
            assert_each_row_read_once(job, engine, live)
            if (parallelism, len(live)) == (3, 9):
                # The one file of epoch 1 is for all; of the eight of epoch 2, each is for some.
                assert [
                    [each.file.subtask for each in slices if each.file.epoch == 2]
                    for slices in load.subtasks["partials"]
                ] == [[0, 1, 2, 3, 4], [0, 1, 5, 6, 7], [2, 3, 4, 5, 6, 7]]
        assert engine.run_epoch() is not None
        live = state_files(engine)
        written = [each.subtask for each in live if each.epoch == epoch]
        assert written == list(range(parallelism))
        assert before.items() <= stored_files(job).items()
    # The first window closed at 3 subtasks, with files of 1, 8 and 3; the second one spans 3 and 2.
    assert {each.epoch for each in live} == {3, 4}
    job.run([Leg(12_000, 2)])
    found = spark.read.parquet(str(tmp_path / "out"))
    spark.range(60_000).selectExpr(
        "id AS counter", "timestamp_millis(1704067200000 + id) AS at"
    ).createOrReplaceTempView("ticks")
    expected = spark.sql(
        "SELECT window(at, '30 seconds') AS w, counter % 700 AS word, count(*) AS n,"
        " sum(counter) AS total, min(counter) AS least, avg(counter) AS mean"
        " FROM ticks GROUP BY w, word"
    )
    assert sorted_rows(found) == sorted_rows(expected)
