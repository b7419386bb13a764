"""`pip install resurgence`: the wheel is complete, needs no build tools, and its command works."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command: str, folder: Path) -> str:
    """Run a command as on a machine that has nothing of this repository."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    run(*PIP, "wheel", *flags, str(ROOT), folder=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {
        str(each.relative_to(source))
        for each in (source / "resurgence").rglob("*")
        if each.is_file() and "__pycache__" not in each.parts and each.suffix != ".pyc"
    }
    names = {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each}
    assert names == expected
    assert "resurgence/cli/project/rides.sql" in names
    assert wheel.name.endswith("-py3-none-any.whl"), "any machine, without build tools"


def test_the_wheel_installs_into_a_fresh_environment_and_its_command_works(
    wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "fresh", folder=tmp_path)
    binaries = tmp_path / "fresh" / "bin"
    install = ["--python", str(binaries / "python"), "install", "--no-deps", "--no-index"]
    run(*PIP, *install, str(wheel), folder=tmp_path)
    # Its dependencies are those of this environment, which only saves the time to download them.
    (packages,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    command = str(binaries / "resurgence")
    where = "import resurgence; print(resurgence.__file__)"
    installed = run(str(binaries / "python"), "-c", where, folder=tmp_path)
    assert Path(installed.strip()).is_relative_to(packages)
    assert run(command, "--version", folder=tmp_path).startswith("resurgence ")
    run(command, "init", "rides", folder=tmp_path)
    shown = run(command, "check", "rides.sql", folder=tmp_path / "rides")
    assert shown.startswith("rides.sql is valid")
