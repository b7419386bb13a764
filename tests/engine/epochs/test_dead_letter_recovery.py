"""Dead letters and their replay: once each, whatever fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.clock import SystemClock
from resurgence.errors import InjectedFault
from resurgence.ids import Epoch
from resurgence.state.inspection.dead_letters import (
    Correction,
    LetterFilter,
    ReplayOutcome,
    dead_letters,
    request_replay,
)
from resurgence.udf import load_functions
from tests.engine.epochs.test_dead_letters import (
    DEAD_LETTER,
    ON_ERROR,
    assert_ledger_balances,
    backend,
    letters,
    line,
    made_job,
    numbers,
)
from tests.engine.harness import Job, Leg

NOW = datetime(2024, 5, 1, tzinfo=UTC)
CHECKED = "SELECT checked(number) AS number FROM events"
LINES = [line(0), "{", line(2), line(6), line(4), line(5), "[", line(7), line(8)]
"""Three epochs of three rows: two bad records, and a row on which `checked` fails."""
GOOD = [0, 2, 4, 5, 7, 8]
DEAD = [(1, 1, b"{"), (2, 3, line(6).encode()), (3, 6, b"[")]
POINTS = [
    pytest.param("epoch.planned", marks=pytest.mark.long),
    pytest.param("epoch.read", marks=pytest.mark.long),
    pytest.param("state.written", marks=pytest.mark.long),
    pytest.param("sink.staged", marks=pytest.mark.long),
    pytest.param("metadata.written", marks=pytest.mark.long),
    "manifest.published",
    pytest.param("sink.committing", marks=pytest.mark.long),
    "sink.committed",
]


def job_of(spark: SparkSession, folder: Path, **settings: str) -> Job:
    return made_job(spark, folder, LINES, query=CHECKED, before=ON_ERROR, settings=settings)


def found(job: Job) -> list[tuple[int, int, bytes]]:
    return [(each["epoch"], each["offset"], each["raw"]) for each in letters(job)]


def replay(
    job: Job, *ids: str, corrected: Mapping[str, bytes | None] | None = None, again: bool = False
) -> ReplayOutcome:
    state = backend(job)
    picked = dead_letters(state, LetterFilter(ids=frozenset(ids) if ids else None)).rows
    corrections = {each: Correction(raw) for each, raw in (corrected or {}).items()}
    return request_replay(state, picked, NOW, corrected=corrections, again=again)


def finish(job: Job) -> None:
    engine = job.open(Leg(rows=3))
    while not engine.finished:
        engine.run_epoch()


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_every_dead_letter_exists_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    job = job_of(spark, tmp_path, faults=f"{point}@2=raise")
    with pytest.raises(InjectedFault):
        finish(job)
    finish(job)
    assert found(job) == DEAD
    assert numbers(job) == GOOD
    assert_ledger_balances(job)


def test_a_replay_after_a_fallback_leaves_out_the_same_rows_also_after_an_edit(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    for epoch in (2, 3):
        (manifest,) = (tmp_path / f"state/job/epochs/{epoch:010}").glob("manifest-0.json")
        manifest.write_bytes(b"damaged")
    # The edited function accepts the rows, but they stay dead letters.
    edited = (tmp_path / "functions.py").read_text().replace("number % 7 != 6", "True")
    (tmp_path / "functions.py").write_text(edited)
    job.functions = load_functions(tmp_path / "functions.py")
    engine = job.open(Leg(rows=3))
    reports = [engine.run_epoch() for _ in range(2)]
    assert engine.finished
    assert [each.counts.dead_rows for each in reports if each] == [
        {"source-events": 1},
        {"source-events": 1},
    ]
    assert found(job) == DEAD
    assert numbers(job) == GOOD


def test_rows_of_a_file_that_was_moved_stay_left_out_after_a_fallback(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path, faults="manifest.published@2=raise")
    with pytest.raises(InjectedFault):
        finish(job)
    (tmp_path / "state/job/epochs/0000000002/manifest-0.json").write_bytes(b"damaged")
    (tmp_path / "events.json").rename(tmp_path / "moved.json")
    job.sql = job.sql.replace("events.json", "moved.json")
    finish(job)
    assert found(job) == DEAD
    assert [each["position"] for each in letters(job)][1] == f"{tmp_path}/moved.json, line 4"
    assert numbers(job) == GOOD


def test_a_replayed_epoch_that_was_never_committed_stages_its_dead_letters_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path, faults="manifest.published@2=raise")
    with pytest.raises(InjectedFault):
        finish(job)
    (tmp_path / "state/job/epochs/0000000002/manifest-0.json").write_bytes(b"damaged")
    finish(job)
    assert found(job) == DEAD
    assert numbers(job) == GOOD


def test_a_rollback_removes_the_dead_letters_of_the_epochs_that_it_undoes(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    state = backend(job)
    claim = state.claim_generation(SystemClock().now())
    state.record_rollback(claim, Epoch(1), SystemClock().now())
    assert [each["epoch"] for each in dead_letters(state).rows.to_pylist()] == [1]
    engine = job.open(Leg(rows=3))
    assert found(job) == DEAD[:1]
    while not engine.finished:
        engine.run_epoch()
    assert found(job) == [
        DEAD[0],
        *((epoch + 2, offset, raw) for epoch, offset, raw in DEAD[1:]),
    ]
    assert numbers(job) == GOOD


def test_corrected_and_unchanged_records_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    corrected = {"1-1": line(1).encode(), "2-1": line(3).encode()}
    outcome = replay(job, "1-1", "2-1", corrected=corrected)
    assert (outcome.rows, outcome.skipped, outcome.has_finished) == (2, 0, True)
    assert [str(each) for each in outcome.late] == [
        "the input of source-events has ended: windows drop all replayed rows as late"
    ]
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1, 3])
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1, 3])
    assert_ledger_balances(job)


def test_a_record_that_fails_again_is_a_dead_letter_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    replay(job)
    finish(job)
    assert found(job) == [*DEAD, *((4, offset, raw) for _, offset, raw in DEAD)]
    assert numbers(job) == GOOD
    assert replay(job, "1-1").skipped == 1
    assert_ledger_balances(job)


def test_a_dead_letter_is_not_replayed_twice_unless_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    assert replay(job, "1-1", corrected={"1-1": line(1).encode()}).rows == 1
    repeated = replay(job, "1-1", corrected={"1-1": line(1).encode()})
    assert (repeated.rows, repeated.skipped) == (0, 1)
    assert replay(job, "1-1", corrected={"1-1": line(1).encode()}, again=True).rows == 1
    # Both requests, one epoch after the other.
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1, 1])


def test_a_running_job_picks_up_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(spark, tmp_path)
    engine = job.open(Leg(rows=3))
    engine.run_epoch()
    replay(job, "1-1", corrected={"1-1": line(1).encode()})
    engine._input._replays_looked_at = NOW
    report = engine.run_epoch()
    assert report is not None
    assert report.counts.rows_in == {"source-events": 4}
    while not engine.finished:
        engine.run_epoch()
    assert numbers(job) == sorted([*GOOD, 1])
    assert_ledger_balances(job)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_a_replay_is_read_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    job = job_of(spark, tmp_path, faults=f"{point}@4=raise")
    finish(job)
    corrected = {"1-1": line(1).encode(), "3-1": line(3).encode()}
    replay(job, "1-1", "3-1", corrected=corrected)
    with pytest.raises(InjectedFault):
        finish(job)
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1, 3])


def test_after_a_rollback_the_replay_is_read_again_but_not_for_letters_that_were_undone(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(spark, tmp_path)
    finish(job)
    corrected = {"1-1": line(1).encode(), "3-1": line(3).encode()}
    replay(job, "1-1", "3-1", corrected=corrected)
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1, 3])
    state = backend(job)
    claim = state.claim_generation(SystemClock().now())
    state.record_rollback(claim, Epoch(2), SystemClock().now())
    finish(job)
    assert numbers(job) == sorted([*GOOD, 1])
    assert [each[1:] for each in found(job)] == [each[1:] for each in DEAD]


def test_generated_rows_are_replayed(spark: SparkSession, tmp_path: Path) -> None:
    lines = [line(0)]
    job = made_job(spark, tmp_path, lines, query=CHECKED, before=ON_ERROR, options=DEAD_LETTER)
    job.sql = job.sql.replace(
        job.sql[job.sql.index("CREATE TABLE events") : job.sql.index("CREATE TABLE out")],
        "CREATE TABLE events (counter BIGINT, timestamp TIMESTAMP) WITH (connector = 'impulse',"
        " message_count = '8');",
    ).replace("checked(number)", "checked(counter)")
    finish(job)
    (letter,) = letters(job)
    fixed = json.loads(letter["raw"]) | {"counter": 600}
    replay(job, corrected={f"{letter['epoch']}-1": json.dumps(fixed).encode()})
    finish(job)
    assert numbers(job) == [0, 1, 2, 3, 4, 5, 7, 600]
