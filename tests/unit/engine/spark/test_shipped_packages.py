"""The archive of packages for the executors of a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from resurgence.engine.spark.shipped_packages import write_archive


def test_the_archive_is_enough_to_import_what_tasks_need(tmp_path: Path) -> None:
    archive = tmp_path / "packages.zip"
    write_archive(archive, ["resurgence"])
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import resurgence.engine.tables.state_writer as module\n"
        "print(module.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(archive)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(str(archive)), done.stderr


def test_packages_with_compiled_modules_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pure.py").touch()
    for name, files in {
        "plain": ("__init__.py", "data.txt"),
        "built": ("__init__.py", "x.so"),
    }.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    monkeypatch.syspath_prepend(tmp_path)
    archive = tmp_path / "packages.zip"
    write_archive(archive, ["pure", "plain", "built", "not_installed_at_all"])
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(archive)],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert "plain/data.txt" in listed
    assert "pure.py" in listed
    assert "built" not in listed
