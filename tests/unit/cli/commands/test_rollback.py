"""A rollback on a state directory finds the sinks where the job wrote them, and creates no files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Cli
from tests.unit.state.real_state import NOW, RealJob

from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind

SQL = """
CREATE TABLE rides (at TIMESTAMP) WITH (connector = 'single_file', path = 'rides.json', type = 'source');
CREATE TABLE hourly WITH (connector = 'filesystem', path = 'out', format = 'json');
CREATE TABLE daily WITH (connector = 'single_file', path = 'days/days.json', type = 'sink');
INSERT INTO hourly SELECT at FROM rides;
INSERT INTO daily SELECT at FROM rides;
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """The command runs in another folder than the job did."""
    before, other = Path.cwd(), tmp_path / "elsewhere"
    other.mkdir()
    os.chdir(other)
    yield other
    os.chdir(before)


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    (tmp_path / "rides.sql").write_text(SQL)
    return str(tmp_path / "rides.sql")


def ran_in(real: RealJob, folder: Path) -> list[Path]:
    """The job's last run was in that folder; its output there."""
    real.backend.claim_generation(NOW, directory=str(folder))
    (folder / "out").mkdir(parents=True)
    files = [folder / "out" / f"{real.claim.job}-{epoch:010}-00000.json" for epoch in (1, 2, 3)]
    for file in files:
        file.write_text("{}\n")
    return files


def test_relative_paths_are_those_of_the_job(
    cli: Cli, real: RealJob, tmp_path: Path, elsewhere: Path, pipeline: str
) -> None:
    files = ran_in(real, tmp_path / "there")
    done = cli("rollback", "--to-epoch", "1", "--sql", pipeline)
    assert done.status == 0, done.err
    assert "epochs 2 to 3 are undone" in done.out
    assert [file.exists() for file in files] == [True, False, False]
    assert not list(elsewhere.iterdir())
    assert not (tmp_path / "there" / "days").exists(), "a sink that wrote nothing is not made"


def test_a_second_rollback_knows_the_folder_too(
    cli: Cli, real: RealJob, tmp_path: Path, elsewhere: Path, pipeline: str
) -> None:
    files = ran_in(real, tmp_path / "there")
    for epoch in ("2", "1"):
        assert cli("rollback", "--to-epoch", epoch, "--sql", pipeline).status == 0
    assert [file.exists() for file in files] == [True, False, False]


def test_the_sink_of_a_missing_folder_is_retracted_by_the_next_run(
    cli: Cli, real: RealJob, tmp_path: Path, elsewhere: Path, pipeline: str
) -> None:
    real.backend.claim_generation(NOW, directory=str(tmp_path / "gone"))
    done = cli("rollback", "--to-epoch", "1", "--sql", pipeline)
    assert "the next run retracts the output" in done.out
    assert [each.to_epoch for each in real.backend.rollbacks()] == [1]
    assert not list(elsewhere.iterdir())


def test_a_live_owner_is_named_and_only_a_dry_run_is_allowed(
    cli: Cli, real: RealJob, pipeline: str
) -> None:
    owner = owner_here(OwnerKind.RUN, "another", NOW)
    real.backend.claim_generation(NOW, owner=owner)
    done = cli("rollback", "--to-epoch", "1", "--sql", pipeline)
    assert done.status != 0
    assert f"has been run by {owner.description}" in done.err
    assert not real.backend.rollbacks()
    assert cli("rollback", "--to-epoch", "1", "--sql", pipeline, "--dry-run").status == 0
