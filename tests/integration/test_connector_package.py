"""A pipeline runs in a worker process with a connector that another package adds."""

from __future__ import annotations

import json
from pathlib import Path

from tests.example_package import EXAMPLE, install_example, resurgence


def test_a_pipeline_runs_with_the_connector_of_a_package(tmp_path: Path) -> None:
    packages = install_example(tmp_path / "packages")
    sql, state = str(EXAMPLE / "countdown.sql"), str(tmp_path / "state")
    done = resurgence("run", sql, "--state-dir", state, "--epoch-rows", "4", packages=packages)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines == [{"number": number} for number in (10, 8, 6, 4, 2)]
