"""A job that is rolled back and resumed returns the batch answer, whatever was committed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.cli.commands.rollback import roll_back
from resurgence.config import KeepRule
from resurgence.connectors import commit_log
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import ResurgenceError, UserError
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.state.retention import Retention
from tests.engine.harness import (
    Job,
    Leg,
    SetClock,
    read_lines,
    sink_table,
    sorted_rows,
    source_table,
    write_lines,
)

ROWS = 300
COLUMNS = "at TIMESTAMP, id BIGINT, word TEXT"


def rides_job(spark: SparkSession, folder: Path, more: str = "") -> Job:
    rng = random.Random(5)
    rows = [
        {
            "at": f"2024-01-01T00:{number // 60:02}:{number % 60:02}",
            "id": number,
            "word": rng.choice("abc"),
        }
        for number in range(ROWS)
    ]
    source = write_lines(folder / "in.json", rows)
    sql = source_table(source, COLUMNS)
    sql += sink_table(folder / "sums", name="sums")
    sql += sink_table(folder / "even.json", name="even", connector="single_file")
    sql += (
        "INSERT INTO sums SELECT tumble(INTERVAL '20 seconds') AS w, word, count(*) AS n, sum(id) AS s"
        " FROM events GROUP BY w, word;\n"
        "INSERT INTO even SELECT id FROM events WHERE id % 2 = 0;\n"
    )
    return Job(spark, folder, sql + more)


def advance(job: Job, epochs: int, rows: int, parallelism: int = 2) -> None:
    engine = job.open(Leg(rows, parallelism))
    for _ in range(epochs):
        engine.run_epoch()


def back(job: Job, epoch: int, **options: bool) -> None:
    flags = {"dry_run": False, "accept_duplicates": False, **options}
    backend = StateBackend(job.store, JobName(job.name))
    roll_back(backend, compile_pipeline(job.sql, CONNECTORS), Epoch(epoch), **flags)


def even(job: Job) -> list[object]:
    return [each["id"] for each in read_lines(job.folder / "even.json")]


def assert_exactly_once(job: Job) -> None:
    found = job.spark.read.parquet(str(job.folder / "sums")).selectExpr("w.start", "word", "n", "s")
    rows = job.spark.read.schema("at TIMESTAMP, id BIGINT, word STRING").json(
        str(job.folder / "in.json")
    )
    rows.createOrReplaceTempView("events")
    expected = job.spark.sql(
        "SELECT window.start, word, count(*) AS n, sum(id) AS s FROM events"
        " GROUP BY window(at, '20 seconds'), word"
    )
    assert sorted_rows(found) == sorted_rows(expected)
    assert even(job) == list(range(0, ROWS, 2))


def test_a_rollback_retracts_and_the_next_run_returns_the_batch_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 5, 40)
    back(job, 2)
    assert even(job) == list(range(0, 80, 2))
    engine = job.open(Leg(33, 3))
    assert engine.epoch == 2
    report = engine.run_epoch()
    assert report is not None
    assert report.epoch == 6, "the numbers go on"
    job.run([Leg(33, 1)])
    assert_exactly_once(job)


@pytest.mark.long
def test_a_finished_job_can_be_rolled_back_again_and_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = rides_job(spark, tmp_path)
    for epoch, rows in ((4, 50), (3, 60), (2, 45), (0, 100)):
        job.run([Leg(rows)])
        assert_exactly_once(job)
        back(job, epoch)
    job.run([Leg(70)])
    assert_exactly_once(job)


def test_a_rollback_that_crashed_before_the_sinks_is_completed_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 5, 40)

    def die(*_: object) -> None:
        raise ResurgenceError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("resurgence.connectors.single_file.SingleFileSink.retract", die)
        patch.setattr("resurgence.connectors.filesystem.FilesystemSink.retract", die)
        with pytest.raises(ResurgenceError, match="killed"):
            back(job, 2)
    assert even(job) == list(range(0, 200, 2))
    job.run([Leg(70)])
    assert_exactly_once(job)


def test_a_sealed_epoch_is_committed_before_later_epochs_are_retracted(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 2, 40)
    job.settings = {"faults": "sink.committing@3=raise"}
    with pytest.raises(ResurgenceError):
        advance(job, 1, 40)
    job.settings = {}
    back(job, 3)
    assert even(job) == list(range(0, 80, 2))
    job.run([Leg(70)])
    assert_exactly_once(job)


def test_falling_back_after_a_rollback_replays_what_came_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 4, 40)
    back(job, 2)
    advance(job, 2, 50)
    for epoch in (5, 6):
        (tmp_path / f"state/job/epochs/{epoch:010}/manifest-0.json").write_bytes(b"")
    engine = job.open(Leg(50))
    assert engine.epoch == 2
    job.run([Leg(50)])
    assert_exactly_once(job)


def test_a_dry_run_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 3, 40)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    back(job, 1, dry_run=True)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before


def test_a_sink_that_cannot_retract_must_be_accepted(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    screen = "CREATE TABLE screen WITH (connector = 'stdout', type = 'sink');"
    job = rides_job(spark, tmp_path, f"{screen}INSERT INTO screen SELECT id FROM events")
    advance(job, 3, 40)
    with pytest.raises(UserError, match="screen cannot retract") as raised:
        back(job, 1)
    assert "--accept-duplicates" in raised.value.hint
    assert job.open().epoch == 3
    back(job, 1, accept_duplicates=True)
    job.run([Leg(90)])
    assert_exactly_once(job)
    assert capfd.readouterr().out.count('{"id":50}') == 2


@pytest.mark.parametrize("epoch", [9, 4])
def test_only_a_retained_checkpoint_can_be_the_target_of_a_rollback(
    spark: SparkSession, tmp_path: Path, epoch: int
) -> None:
    job = rides_job(spark, tmp_path)
    advance(job, 4, 40)
    back(job, 3)
    with pytest.raises(UserError, match=f"cannot roll back to epoch {epoch}") as raised:
        back(job, epoch)
    assert "Choose one of 1, 2, 3" in raised.value.hint


# ---------------------------------------------------------------- checkpoints that were thinned

EVER = (KeepRule(timedelta(days=1), timedelta(days=1)),)


class Thinning(Retention):
    """Does not wait for many epochs."""

    batch = 2


def thinned_job(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> Job:
    """Eight epochs, of which only the first and the newest have a checkpoint, and only the newest
    ones a commit record of their own.
    """
    patch.setattr(commit_log, "RECENT", 2)
    job = rides_job(spark, folder)
    clock = SetClock(datetime(2030, 1, 1, 12, tzinfo=UTC))
    job.clock = clock
    engine = job.open(Leg(25))
    claim = StateBackend(job.store, JobName(job.name)).newest_claim()
    assert claim is not None
    retention = Thinning(
        StateBackend(job.store, JobName(job.name)), 1, claim.generation, EVER, clock
    )
    for _ in range(8):
        clock.at += timedelta(seconds=1)
        engine.run_epoch()
        engine.forget(retention.run().oldest)
    assert sealed_epochs(job) == [1, 8]
    assert list(folder.glob(".even.json.resurgence/commits/*/past/*.json"))
    return job


def sealed_epochs(job: Job) -> list[int]:
    found = (job.folder / "state/job/epochs").glob("*/manifest-*.json")
    return sorted(int(each.parent.name) for each in found)


@pytest.mark.long
def test_a_fallback_over_thinned_epochs_replays_them_exactly_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = thinned_job(spark, tmp_path, monkeypatch)
    shown = even(job)
    (tmp_path / "state/job/epochs/0000000008/manifest-0.json").write_bytes(b"")
    # Another size of epochs: those on record are cut as they were.
    engine = job.open(Leg(60, 3))
    assert engine.epoch == 1
    reports = [engine.run_epoch() for _ in range(7)]
    assert [(each.epoch, each.rows) for each in reports if each] == [
        (epoch, 25) for epoch in range(2, 9)
    ]
    assert even(job) == shown
    job.run([Leg(60)])
    assert_exactly_once(job)


@pytest.mark.long
def test_a_rollback_beyond_thinned_epochs_retracts_all_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = thinned_job(spark, tmp_path, monkeypatch)
    back(job, 1)
    assert even(job) == list(range(0, 25, 2))
    job.run([Leg(70)])
    assert_exactly_once(job)


@pytest.mark.long
def test_a_job_that_thins_as_it_replays_is_exact(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fallen back, killed in the middle of the replay, and fallen back once more."""
    job = thinned_job(spark, tmp_path, monkeypatch)
    (tmp_path / "state/job/epochs/0000000008/manifest-0.json").write_bytes(b"")
    engine = job.open(Leg(60))
    backend = StateBackend(job.store, JobName(job.name))
    claim = backend.newest_claim()
    assert claim is not None
    assert job.clock is not None
    retention = Thinning(backend, 1, claim.generation, EVER, job.clock)
    for _ in range(4):
        engine.run_epoch()
        retention.run()
    for manifest in (tmp_path / "state/job/epochs").glob("*/manifest-*.json"):
        if manifest.parent.name != f"{1:010}":
            manifest.write_bytes(b"")
    assert job.open(Leg(60)).epoch == 1
    job.run([Leg(60)])
    assert_exactly_once(job)
