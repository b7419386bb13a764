"""Rolled files of a `filesystem` sink: real workers, real SIGKILL, and a stop by Ctrl-C."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, RIDES, Project, rows_of, settings

KILLS = (
    "sink.staged@2=kill",
    "manifest.published@3=kill",
    "sink.committing@4=kill",
    "sink.committed@5=kill",
    "metadata.written@6=kill",
    "sink.committing@8=kill",
)
ROLLED = (
    RIDES
    + """
CREATE TABLE rolled (at TIMESTAMP, driver BIGINT, kind TEXT) WITH (
  connector = 'filesystem', path = 'out/rolled', format = 'parquet', type = 'sink',
  'partitioning.fields' = [kind], 'rolling_policy.file_size' = '6kB');
INSERT INTO rolled SELECT at, driver, kind FROM rides;
"""
)
NUMBERS = """
CREATE TABLE numbers (counter BIGINT, timestamp TIMESTAMP)
WITH (connector = 'impulse', type = 'source', event_rate = '200');
CREATE TABLE held WITH (connector = 'filesystem', path = 'out/held', format = 'json', type = 'sink',
  'rolling_policy.interval' = INTERVAL '1 hour');
INSERT INTO held SELECT counter FROM numbers;
"""
DEADLINE_SECONDS = 240.0


@pytest.mark.long  # With all systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(900)
def test_workers_that_are_killed_between_stage_and_commit_roll_every_row_once(
    project: Project,
) -> None:
    (project.folder / "rides.sql").write_text(ROLLED)
    project.write_input(800)
    done = project.run(
        "--epoch-rows",
        "100",
        "--parallelism",
        "1",
        *settings(*QUICK, f"faults={','.join(KILLS)}"),
    )
    assert done.returncode == 0, done.stderr
    assert len(project.events("failure")) == len(KILLS)
    files = [*(project.folder / "out/rolled").glob("kind=*/*.parquet")]
    assert 2 < len(files) < 16, "files are of several epochs"
    read = f"read_parquet({[*map(str, files)]}, hive_partitioning = false)"
    assert rows_of(
        f"""SELECT "at"::TIMESTAMPTZ::TIMESTAMP AS moment, driver, kind FROM {read} ORDER BY ALL"""
    ) == rows_of(f"SELECT moment, driver, kind FROM {project._rides} ORDER BY ALL")
    left = [*(project.folder / "out/rolled/.resurgence").rglob("staged/*")]
    assert left == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stop_by_ctrl_c_makes_held_rows_visible_and_the_next_run_continues(
    project: Project,
) -> None:
    (project.folder / "rides.sql").write_text(NUMBERS)
    for _ in range(2):
        process = project.start(*settings(*QUICK))
        seen = len(project.events("committed"))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(project.events("committed")) < seen + 3:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
    files = [*(project.folder / "out/held").glob("*.json")]
    assert len(files) == 2, "one per run"
    assert_contiguous(files)


def assert_contiguous(files: list[Path]) -> None:
    """All counters from 0 on, each once."""
    query = f"SELECT count(*), count(DISTINCT counter), max(counter) FROM read_json({[*map(str, files)]})"
    ((count, distinct, highest),) = rows_of(query)
    assert count == distinct == highest + 1
