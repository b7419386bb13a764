"""What a run leaves in the system's temporary folder: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, Project, settings


@pytest.mark.timeout(400)
def test_a_run_whose_worker_was_killed_leaves_the_temporary_folder_as_it_was(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    done = project.run("--epoch-rows", "400", *settings(*QUICK, "faults=sink.staged@2=kill"))
    assert done.returncode == 0, done.stderr
    assert len(project.events("worker_started")) == 2
    project.assert_exactly_once()
    assert sorted(Path(folder).iterdir()) == []
