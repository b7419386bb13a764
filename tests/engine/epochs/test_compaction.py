"""Compaction in the background: few files, the same answer, and no file rewritten too often."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.compaction import Compactor, crowded
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.operators.base import shares_of
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import Written
from resurgence.errors import TaskFailed
from resurgence.ids import Epoch, OperatorId
from resurgence.state.key_groups import owned_groups
from resurgence.state.records import StateFile
from tests.engine.harness import Job, Leg, sink_table, sorted_rows, state_files

EPOCHS = 500
LIMIT = 8
WINDOW = OperatorId("window-1")
NOTHING = Written((), 0, 0)
AT_ONCE, PATIENTLY = timedelta(0), timedelta(seconds=30)
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def state_file(epoch: int, subtask: int, parallelism: int, size: int) -> StateFile:
    return StateFile(
        path=f"{epoch}-{subtask}-{size}",
        subtask=subtask,
        epoch=Epoch(epoch),
        rows=size,
        bytes=size,
        key_groups=owned_groups(subtask, parallelism),
        time_start=0,
        time_end=10,
        digest="",
    )


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_files_stay_few_over_many_epochs_and_are_rewritten_rarely(parallelism: int) -> None:
    live = LiveFiles.none(parallelism)
    most, rewritten = 0, 0
    for epoch in range(1, EPOCHS + 1):
        live = live.appended(
            tuple(state_file(epoch, each, parallelism, 100) for each in range(parallelism))
        )
        most = max(most, live.fullest_subtask())
        if live.fullest_subtask() > LIMIT:
            chosen = live.small_files()
            sizes = [0] * parallelism
            for each in live.files:
                if each.path in chosen:
                    sizes[each.subtask] += each.bytes
            rewritten += sum(sizes)
            live = live.exchanged(
                chosen,
                tuple(
                    state_file(epoch, number, parallelism, size)
                    for number, size in enumerate(sizes)
                ),
            )
    assert sum(each.bytes for each in live.files) == EPOCHS * parallelism * 100
    assert most <= 2 * LIMIT
    assert rewritten <= 12 * EPOCHS * parallelism * 100, "about as often as the table doubles"


def test_the_fullest_table_is_merged_first() -> None:
    def table(epochs: int) -> LiveFiles:
        files = (state_file(each, 0, 1, 100) for each in range(1, epochs + 1))
        return LiveFiles.none(1).appended(tuple(files))

    small, first, full = (OperatorId(each) for each in ("small", "first", "full"))
    tables = {small: table(8), first: table(9), full: table(20)}
    assert crowded(tables, 8) == [full, first]


@pytest.mark.parametrize(
    ("parallelism", "cores", "sizes"),
    [(1, 1, [1]), (2, 2, [1, 1]), (4, 4, [2, 2]), (3, 4, [2, 1]), (64, 2, [8] * 8), (2, 64, [2])],
)
def test_a_merge_leaves_half_of_the_cores_to_the_epochs(
    parallelism: int, cores: int, sizes: list[int]
) -> None:
    live = LiveFiles.none(parallelism).appended(
        tuple(state_file(1, each, parallelism, 100) for each in range(parallelism))
    )
    shares = shares_of(live, cores)
    assert [sum(map(bool, each.subtasks)) for each in shares] == sizes
    assert [len(each.subtasks) for each in shares] == [parallelism] * len(sizes)
    merged = [file for each in shares for file in each.files]
    assert sorted(each.path for each in merged) == sorted(live.paths)


def numbers_job(spark: SparkSession, folder: Path, rows: int) -> Job:
    sql = (
        f"CREATE TABLE ticks WITH (connector = 'impulse', message_count = '{rows}',"
        " event_time_interval = '1ms', start_time = '2024-01-01T00:00:00');"
        + sink_table(folder / "out", name="out")
        + "INSERT INTO out SELECT tumble(INTERVAL '1 hour') AS w, counter % 7 AS k,"
        " count(*) AS n, sum(counter) AS total FROM ticks GROUP BY w, k"
    )
    return Job(spark, folder, sql, settings={"checkpoint.compact_files": "2"})


def assert_answer(job: Job, rows: int) -> None:
    found = job.spark.read.parquet(str(job.folder / "out")).select("k", "n", "total")
    numbers = job.spark.range(rows).selectExpr("id % 7 AS k", "id")
    expected = numbers.groupBy("k").agg({"*": "count", "id": "sum"})
    assert sorted_rows(found) == sorted_rows(expected.selectExpr("k", "`count(1)`", "`sum(id)`"))


def test_compaction_bounds_the_files_and_keeps_the_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = numbers_job(spark, tmp_path, 900)
    seen: list[int] = []

    def note(engine: Engine) -> None:
        seen.append(len(state_files(engine)))

    job.run([Leg(30, epochs=12), Leg(30, epochs=100)], note)
    assert len(seen) == 30
    assert max(seen) <= 2 * (2 * 2 + 2), "two subtasks, twice the limit, and what is in flight"
    assert_answer(job, 900)


def test_files_that_have_reached_the_size_cap_hold_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch of two rows is a file, in appends and in compactions, and after a rescale."""
    monkeypatch.setattr("resurgence.engine.tables.state_writer.ROLL_BYTES", 1)
    job = numbers_job(spark, tmp_path, 300)
    seen: list[int] = []
    batch_rows = spark.conf.get(BATCH_ROWS)
    spark.conf.set(BATCH_ROWS, "2")
    try:
        job.run(
            [Leg(50, epochs=4), Leg(50, 3, epochs=100)],
            lambda engine: seen.append(len(state_files(engine))),
        )
    finally:
        spark.conf.set(BATCH_ROWS, batch_rows or "10000")
    assert seen[0] > 2, "two subtasks"
    assert_answer(job, 300)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_files_stay_few_over_hundreds_of_epochs(spark: SparkSession, tmp_path: Path) -> None:
    job = numbers_job(spark, tmp_path, 2 * EPOCHS)
    job.settings = {"checkpoint.compact_files": str(LIMIT)}
    seen: list[int] = []
    job.run([Leg(2, 1, epochs=EPOCHS)], lambda engine: seen.append(len(state_files(engine))))
    assert len(seen) == EPOCHS
    assert max(seen) <= 2 * LIMIT + 2
    assert_answer(job, 2 * EPOCHS)


def test_a_compaction_is_adopted_only_once_it_is_done() -> None:
    compactor, gate = Compactor(timedelta(minutes=1)), threading.Event()

    def write() -> Written:
        assert gate.wait(30)
        return NOTHING

    compactor.start(WINDOW, Epoch(5), frozenset({"a"}), write)
    assert compactor.take(AT_ONCE) is None
    assert compactor.in_flight == 5
    gate.set()
    taken = compactor.take(PATIENTLY)
    assert taken is not None
    assert taken.written.result() == NOTHING
    assert compactor.in_flight == 5, "its files are in no checkpoint yet"
    compactor.clear()
    assert compactor.in_flight is None
    assert compactor.take(PATIENTLY) is None


def test_an_epoch_waits_for_a_compaction_no_longer_than_its_patience() -> None:
    compactor, gate = Compactor(timedelta(minutes=1)), threading.Event()
    compactor.start(WINDOW, Epoch(5), frozenset(), lambda: (gate.wait(30) and NOTHING) or NOTHING)
    assert compactor.take(timedelta(milliseconds=20)) is None
    assert compactor.in_flight == 5, "it continues"
    gate.set()


def test_only_one_compaction_runs_at_a_time() -> None:
    compactor, gate = Compactor(timedelta(minutes=1)), threading.Event()
    compactor.start(WINDOW, Epoch(5), frozenset(), lambda: (gate.wait(30) and NOTHING) or NOTHING)
    compactor.start(WINDOW, Epoch(6), frozenset(), pytest.fail)
    assert compactor.in_flight == 5
    gate.set()


def test_the_failure_of_a_compaction_is_the_failure_of_the_next_epoch() -> None:
    compactor = Compactor(timedelta(minutes=1))

    def write() -> Written:
        raise LookupError("no such file")

    compactor.start(WINDOW, Epoch(5), frozenset(), write)
    with pytest.raises(LookupError):
        compactor.take(PATIENTLY)


@pytest.mark.parametrize("patience", [timedelta(minutes=2), timedelta(0)])
def test_a_hung_compaction_fails_at_its_deadline(patience: timedelta) -> None:
    compactor, gate = Compactor(timedelta(0)), threading.Event()
    compactor.start(WINDOW, Epoch(5), frozenset(), lambda: (gate.wait(30) and NOTHING) or NOTHING)
    with pytest.raises(TaskFailed, match="compaction of window-1 did not finish within"):
        compactor.take(patience)
    gate.set()
