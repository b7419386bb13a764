"""The table of dead letters, of which most jobs have none."""

from __future__ import annotations

from pathlib import Path

from resurgence.connectors.dead_letter_table import DeadLetterTable
from resurgence.ids import Epoch, JobIdentity, JobName
from resurgence.state.paths import JobPaths

JOB = JobIdentity("a1b2c3d4e5f6")


def test_a_job_without_dead_letters_has_no_folder_for_them(tmp_path: Path) -> None:
    table = DeadLetterTable(f"file://{tmp_path}", JobPaths(JobName("rides")))
    table.recall(JOB, [Epoch(1)])
    table.sweep(JOB, Epoch(5))
    table.forget(JOB, Epoch(5))
    table.retract(JOB, Epoch(2), Epoch(5))
    assert list(tmp_path.iterdir()) == []
