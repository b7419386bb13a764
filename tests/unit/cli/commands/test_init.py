"""`init` creates a project that is valid, and never overwrites a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resurgence.cli.commands.init import RIDES

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_is_created_and_its_pipeline_is_valid(
    machine_cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = machine_cli("init", "first/rides")
    assert answer.status == 0
    project = folder / "first/rides"
    assert sorted(str(each.relative_to(project)) for each in project.rglob("*.*")) == [
        ".gitignore",
        "README.md",
        "data/rides.json",
        "resurgence.toml",
        "rides.sql",
        "test_rides.py",
    ]
    assert len((project / "data/rides.json").read_text().splitlines()) == RIDES
    monkeypatch.chdir(project)
    assert "1 source, 1 sink, 1 operator with state" in machine_cli("check", "rides.sql").out


def test_every_file_of_the_project_is_described_in_its_readme(
    machine_cli: Cli, folder: Path
) -> None:
    machine_cli("init", ".")
    readme = (folder / "README.md").read_text()
    names = [str(each.relative_to(folder)) for each in folder.rglob("*.*") if each.is_file()]
    hidden_or_itself = {".gitignore", "README.md"}
    assert [each for each in names if f"`{each}`" not in readme] == [
        each for each in names if each in hidden_or_itself
    ]


def test_an_existing_file_is_not_changed_and_nothing_is_written(
    machine_cli: Cli, folder: Path
) -> None:
    (folder / "rides.sql").write_text("mine")
    answer = machine_cli("init", ".")
    assert answer.status == 2
    assert "rides.sql already exists" in answer.err
    assert [each.name for each in folder.iterdir()] == ["rides.sql"]
    assert (folder / "rides.sql").read_text() == "mine"


def test_a_folder_that_cannot_be_created_is_refused(machine_cli: Cli, folder: Path) -> None:
    (folder / "file").touch()
    answer = machine_cli("init", "file/rides")
    assert answer.status == 2
    assert "cannot write to file/rides" in answer.err
