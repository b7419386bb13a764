"""The tutorial works as it is written: a job is killed, recovers, and has the batch answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tutorial import has_line, outputs, script, steps_of

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
DEADLINE_SECONDS = 570.0


@pytest.mark.timeout(600)
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    steps = steps_of(PAGE)
    assert len(steps) == 7
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, module in (("resurgence", "-m resurgence "), ("python", "")):
        command = binaries / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        command.chmod(0o755)
    folder = tmp_path / "empty"
    folder.mkdir()
    path = os.pathsep.join([str(binaries), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script(steps)],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    missing = [
        line
        for step, output in zip(steps, outputs(done.stdout), strict=True)
        for line in step.expected
        if not has_line(output, line)
    ]
    assert missing == [], done.stdout
