"""Where the time of an epoch goes, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs import engine as engine_module
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.epochs.timeline import Work
from tests.engine.harness import Job, Leg, sink_table, source_table, write_lines

ROWS, EPOCHS = 60, 3
WINDOWS = "SELECT tumble(INTERVAL '10 seconds') AS window, user, count(*) AS n"
SESSIONS = "SELECT session(INTERVAL '10 seconds') AS window, user, count(*) AS n"
PROFILED = {"pipeline.profile": "true"}


def job(spark: SparkSession, folder: Path, query: str, settings: dict[str, str]) -> Job:
    rows = (
        {"at": f"2024-01-01 00:{each // 60:02}:{each % 60:02}", "user": each % 5}
        for each in range(ROWS)
    )
    sql = source_table(write_lines(folder / "in.json", rows), "at TIMESTAMP, user BIGINT")
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    sql += f"INSERT INTO out SELECT window.start, user, n FROM ({query} FROM events GROUP BY window, user)"
    return Job(spark, folder, sql, settings=settings)


def profiles(spark: SparkSession, folder: Path, query: str) -> list[EpochProfile]:
    """Run every epoch of a job; their profiles."""
    found: list[EpochProfile] = []
    engine = job(spark, folder, query, PROFILED).open(Leg(ROWS // EPOCHS))
    while not engine.finished:
        engine.run_epoch(profiled=found.append)
    return found


def test_the_parts_of_a_profiled_epoch_add_up_and_every_job_has_its_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sparkContext.setJobGroup("profiled epochs", "")
    found = profiles(spark, tmp_path, WINDOWS)
    assert [each.epoch for each in found] == [*range(1, len(found) + 1)]
    for profile in found:
        assert sum(each.total for each in profile.work) == pytest.approx(profile.seconds)
        assert 0 < profile.checkpoint_share < 1
    jobs = [each for profile in found for each in profile.jobs]
    tracker = spark.sparkContext.statusTracker()
    assert {each.job for each in jobs} == set(tracker.getJobIdsForGroup("profiled epochs"))
    operators = {str(each.operator).partition("-")[0] for each in jobs}
    assert operators == {"window", "sink"}
    assert all(each.tasks and each.task_seconds for each in jobs)
    assert all(each.python_bytes for each in jobs)
    assert any(each.shuffle_bytes_written for each in jobs)
    assert len(spark.sparkContext.getJobTags()) == 0


def test_a_job_that_only_writes_state_counts_as_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    jobs = [each for profile in profiles(spark, tmp_path, SESSIONS) for each in profile.jobs]
    assert {each.work for each in jobs} == {Work.OPERATOR, Work.STATE}


def test_spark_is_not_asked_about_an_epoch_that_is_not_profiled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(engine_module, "JobWatch")
    found: list[EpochProfile] = []
    report = job(spark, tmp_path, WINDOWS, {}).open().run_epoch(profiled=found.append)
    assert report is not None
    assert 0 < report.timeline.checkpoint_share() < 1
    assert found == []
